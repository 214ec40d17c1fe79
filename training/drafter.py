"""The DFlash drafter: reads hidden states of the frozen target, proposes a whole block at once."""

import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from common import (BLOCK, BOS, CONTEXT, EOS, HIDDEN, MASK, PAD, ROPE, TAPS, VOCAB, WINDOW, Optimiser, load_tokens,
                    random_rows)
from target import load_target


def new_drafter() -> nn.Module:
    config = transformers.MuseGlimmerAssistantConfig(
        hidden_size=HIDDEN, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, sliding_window=WINDOW, rope_parameters=dict(ROPE), block_size=BLOCK, mask_token_id=MASK,
        target_layer_ids=list(TAPS), max_position_embeddings=CONTEXT, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD,
    )
    return transformers.MuseGlimmerAssistantModel(config)


def tapped(target: nn.Module, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The target's hidden states at the taps [B, T, taps * hidden] and its logits [B, T, vocab] for ids [B, T]."""
    result = target(input_ids=ids, use_cache=False, output_hidden_states=True)
    return torch.cat([result.hidden_states[layer + 1] for layer in TAPS], -1), result.logits


def block_mask(anchors: Tensor, length: int) -> Tensor:
    """What each block position may see, as 0 or -inf: [B, 1, blocks * BLOCK, length + blocks * BLOCK].

    Of the context: positions before the block's anchor and at most WINDOW away. Of the blocks: its own, both ways.
    `anchors` [B, blocks] are the positions of the blocks' first tokens."""
    rows, blocks = anchors.shape
    positions = anchors[:, :, None] + torch.arange(BLOCK)
    context = torch.arange(length)
    sees = (context[None, None, :] < anchors[:, :, None])[:, :, None, :] & (positions[..., None] - context <= WINDOW)
    own = torch.eye(blocks, dtype=torch.bool).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    mask = torch.cat([sees.reshape(rows, blocks * BLOCK, length), own[None].expand(rows, -1, -1)], -1)[:, None]
    return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))


def draft_and_target_logits(drafter: nn.Module, target: nn.Module, ids: Tensor, blocks: int,
                            generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Logits of the drafter and of the target for `blocks` random blocks a row of ids [B, T]; each [B, blocks, BLOCK-1, V]."""
    rows, length = ids.shape
    with torch.no_grad():
        context_states, target_logits = tapped(target, ids)
    anchors = torch.stack([torch.randperm(length - BLOCK - 1, generator=generator)[:blocks].sort().values + 1
                           for _ in range(rows)])
    positions = anchors[:, :, None] + torch.arange(BLOCK)
    block_ids = torch.full((rows, blocks, BLOCK), MASK)
    block_ids[:, :, 0] = ids.gather(1, anchors)
    mask = block_mask(anchors, length)
    embedding = target.model.language_model.embed_tokens.weight
    hidden = drafter(
        noise_embeds=F.embedding(block_ids.reshape(rows, -1), embedding), context_hidden_states=context_states,
        use_cache=False, attention_mask={"sliding_attention": mask, "full_attention": mask},
        position_ids=torch.cat([torch.arange(length)[None].expand(rows, -1), positions.reshape(rows, -1)], 1),
    ).last_hidden_state
    text_config = target.config.text_config
    cap = text_config.final_logit_softcapping
    logits = target.lm_head(hidden.reshape(rows, blocks, BLOCK, -1)[:, :, 1:]) * text_config.output_multiplier
    logits = torch.tanh(logits / cap) * cap
    predicted_by = (positions[:, :, 1:] - 1).reshape(rows, -1)[..., None].expand(-1, -1, VOCAB)
    return logits, target_logits.gather(1, predicted_by).reshape(rows, blocks, BLOCK - 1, VOCAB)


def train_drafter(folder: Path, sequences: int, rows: int = 6, length: int = 384, blocks: int = 24,
                  peak: float = 2e-3) -> None:
    """Distils the target into the drafter over `sequences` sequences; goes on from folder/drafter where there is one.

    Three batches in four come from folder/generated.pt where that file is. Early positions of a block weigh more: a
    later one counts only if all before it were right."""
    torch.manual_seed(3)
    train, _ = load_tokens(folder)
    generated = torch.load(folder / "generated.pt") if (folder / "generated.pt").exists() else None
    target = load_target(folder)
    if (folder / "drafter" / "model.safetensors").exists():
        drafter = transformers.MuseGlimmerAssistantModel.from_pretrained(folder / "drafter")
    else:
        drafter = new_drafter()
    drafter.set_attn_implementation("sdpa")
    drafter.train()
    steps, started = sequences // rows, time.time()
    optimiser, generator = Optimiser(drafter.parameters(), steps, peak), torch.Generator().manual_seed(4)
    weight = torch.tensor([math.exp(-(j - 1) / 4) for j in range(1, BLOCK)])
    for step in range(steps):
        if generated is not None and step % 4:
            ids = generated[torch.randint(0, len(generated), (rows,), generator=generator)][:, : length + BLOCK]
        else:
            ids = random_rows(train, rows, length + BLOCK - 1, generator)
        drafted, wanted = draft_and_target_logits(drafter, target, ids, blocks, generator)
        divergence = F.kl_div(F.log_softmax(drafted, -1), F.log_softmax(wanted, -1), log_target=True, reduction="none").sum(-1)
        loss = (divergence * weight).sum() / (weight.sum() * divergence.shape[0] * divergence.shape[1])
        optimiser.step(loss)
        if step % 25 == 0 or step == steps - 1:
            hit = (drafted.argmax(-1) == wanted.argmax(-1)).float()
            agreement = [round(share, 3) for share in hit.mean((0, 1)).tolist()]
            run = hit.cumprod(-1).sum(-1).mean()
            print(f"step {step}/{steps} kl {loss.item():.3f} agree by position {agreement} run {run:.2f} "
                  f"{time.time() - started:.0f}s", flush=True)
        if step % 200 == 199 or step == steps - 1:
            drafter.save_pretrained(folder / "drafter")


def measure_acceptance(folder: Path, tokens: int) -> None:
    """Greedy text after five prompts, drafted block by block; prints tokens per verify and how often each position counts."""
    prompts = ("In the beginning", "And the king said unto", "Blessed are they", "The words of the wise",
               "And it came to pass")
    target = load_target(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")
    drafter = transformers.MuseGlimmerAssistantModel.from_pretrained(folder / "drafter").eval()
    embedding = target.model.language_model.embed_tokens.weight
    verifies, made, reached = 0, 0, torch.zeros(BLOCK - 1)
    for prompt in prompts:
        start = torch.tensor([BOS, *tokenizer(prompt, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            ids = target.generate(start[None], max_new_tokens=tokens // len(prompts), do_sample=False, pad_token_id=PAD)[0]
            context_states, _ = tapped(target, ids[None])
            position = len(start)
            while position < len(ids) - BLOCK:
                block = torch.cat([ids[position : position + 1], torch.full((BLOCK - 1,), MASK)])
                hidden = drafter(noise_embeds=F.embedding(block[None], embedding),
                                 context_hidden_states=context_states[:, :position], use_cache=False).last_hidden_state
                proposed = target.lm_head(hidden)[0, 1:].argmax(-1)
                right = (proposed == ids[position + 1 : position + BLOCK]).float().cumprod(0)
                reached += right
                verifies += 1
                made += int(right.sum()) + 1
                position += int(right.sum()) + 1
    by_position = [round(float(share), 2) for share in reached / verifies]
    print(f"tokens per verify {made / verifies:.2f} over {verifies} verifies, reached by position {by_position}")
