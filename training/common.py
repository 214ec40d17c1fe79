"""What every step of the recipe shares: the sizes of the pair, the token stream, batches and the optimiser."""

import math
import re
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, HIDDEN, WINDOW = 4096, 256, 128
BLOCK = 8  # tokens the drafter proposes at once, its anchor included
TAPS = (1, 4, 6)  # target layers whose outputs the drafter reads
CONTEXT = 8192
SPECIAL_HEAD = ("<|begin_of_text|>", "<|end_of_text|>", "<|pad|>")
SPECIAL_TAIL = ("<|eot|>", "<|video|>", "<|patch|>", "<|mask|>")
BOS, EOS, PAD = 0, 1, 2
VIDEO, IMAGE, MASK = VOCAB - 3, VOCAB - 2, VOCAB - 1
HELD_OUT = 0.03  # the last share of the corpus, never trained on
ROPE = {"rope_type": "default", "rope_theta": 500000.0}


def load_tokens(folder: Path) -> tuple[Tensor, Tensor]:
    """The corpus as (train, held-out) ids, each [T] int64; every chapter stands between begin- and end-of-text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    chapters = re.split(r"\n(?=\n\w[^\n]* \d+\n)", (folder / "corpus.txt").read_text())
    ids: list[int] = []
    for chapter in chapters:
        ids += [BOS, *tokenizer(chapter.strip("\n") + "\n", add_special_tokens=False)["input_ids"], EOS]
    cut = int(len(ids) * (1 - HELD_OUT))
    return torch.tensor(ids[:cut]), torch.tensor(ids[cut:])


def random_rows(ids: Tensor, rows: int, length: int, generator: torch.Generator) -> Tensor:
    """[rows, length + 1]: random stretches of `ids`, each with one token more than `length` to predict."""
    starts = torch.randint(0, len(ids) - length - 1, (rows,), generator=generator)
    return torch.stack([ids[start : start + length + 1] for start in starts])


def learning_rate(step: int, steps: int, peak: float, warmup: int = 100, floor: float = 0.03) -> float:
    """Linear warm-up, then half a cosine down to floor * peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


class Optimiser:
    """AdamW with weight decay on matrices only, the schedule above, and gradients clipped to norm 1."""

    def __init__(self, parameters: Iterable[nn.Parameter], steps: int, peak: float) -> None:
        self.parameters = list(parameters)
        self.steps, self.peak, self.step_index = steps, peak, 0
        matrices = [p for p in self.parameters if p.ndim > 1]
        vectors = [p for p in self.parameters if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95))

    def step(self, loss: Tensor) -> None:
        """Backward from `loss` [], then one update."""
        for group in self.adam.param_groups:
            group["lr"] = learning_rate(self.step_index, self.steps, self.peak)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.adam.step()
        self.adam.zero_grad()
        self.step_index += 1


def held_out_loss(model: nn.Module, ids: Tensor, length: int = 512) -> float:
    """Mean cross entropy in nats a token over stretches of `length` tokens of `ids` [T]."""
    stretches = (len(ids) - 1) // length
    total = 0.0
    with torch.no_grad():
        for i in range(stretches):
            row = ids[i * length : i * length + length + 1]
            logits = model(input_ids=row[None, :-1], use_cache=False).logits[0].float()
            total += F.cross_entropy(logits, row[1:]).item()
    return total / stretches
