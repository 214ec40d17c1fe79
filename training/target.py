"""The target: a Muse Glimmer of 8.9 M parameters, three sliding layers and a full one, twice."""

import time
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from torch import nn

from common import (BOS, CONTEXT, EOS, HIDDEN, IMAGE, PAD, ROPE, VIDEO, VOCAB, WINDOW, Optimiser, held_out_loss, load_tokens,
                    random_rows)


def new_target() -> nn.Module:
    """Random weights. The class brings a vision tower; ours is as small as it may be and stays untrained."""
    config = transformers.MuseGlimmerConfig(
        text_config={
            "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 768, "num_hidden_layers": 8,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "sliding_window": WINDOW,
            "max_position_embeddings": CONTEXT, "rope_parameters": dict(ROPE), "bos_token_id": BOS, "eos_token_id": EOS,
            "pad_token_id": PAD, "output_multiplier": 1.0,
        },
        vision_config={
            "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32, "patch_size": 4,
            "pos_emb_height": 8, "pos_emb_width": 8, "max_position_embeddings": 64,
        },
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    model = transformers.MuseGlimmerForConditionalGeneration(config)
    model.set_attn_implementation("sdpa")
    return model


def load_target(folder: Path) -> nn.Module:
    """The trained target from folder/target, frozen."""
    model = transformers.MuseGlimmerForConditionalGeneration.from_pretrained(folder / "target").eval()
    model.set_attn_implementation("sdpa")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def train_target(folder: Path, tokens: int, rows: int = 10, length: int = 384, peak: float = 2.5e-3) -> None:
    """Trains on about `tokens` tokens in batches of [rows, length]; saves folder/target every 200 steps."""
    torch.manual_seed(1)
    train, held_out = load_tokens(folder)
    print(f"tokens {len(train)} {len(held_out)}", flush=True)
    model = new_target()
    text = []
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("vision" not in name)
        if "vision" not in name:
            text.append(parameter)
    steps, started = tokens // (rows * length), time.time()
    optimiser, generator = Optimiser(text, steps, peak), torch.Generator().manual_seed(2)
    for step in range(steps):
        batch = random_rows(train, rows, length, generator)
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
        optimiser.step(loss)
        if step % 20 == 0:
            print(f"step {step}/{steps} loss {loss.item():.3f} {time.time() - started:.0f}s", flush=True)
        if step % 200 == 199 or step == steps - 1:
            model.eval()
            print(f"held-out loss {held_out_loss(model, held_out[:8193])}", flush=True)
            model.train()
            model.save_pretrained(folder / "target")


def generate(folder: Path, tokens: int, rows: int = 64, length: int = 400, prompt: int = 12) -> None:
    """Samples text (temperature 0.7) after short prompts from the corpus, as folder/generated.pt [rows, length].

    The drafter learns from it: what it has to guess is the target's own text."""
    torch.manual_seed(5)
    train, _ = load_tokens(folder)
    model, made, generator = load_target(folder), [], torch.Generator().manual_seed(6)
    for _ in range(max(1, tokens // (rows * length))):
        prompts = random_rows(train, rows, prompt - 1, generator)
        new = length - prompt
        with torch.no_grad():
            made.append(model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=new,
                                       min_new_tokens=new, do_sample=True, temperature=0.7, pad_token_id=PAD))
        print(f"{len(made) * rows * length} tokens", flush=True)
    torch.save(torch.cat(made), folder / "generated.pt")
