#!/usr/bin/env python3
"""Writes muse-glimmer-assistant/window_case.safetensors: the rounds of case.safetensors under the drafter's own window.

case.safetensors was computed without a cache. There Hugging Face transformers leaves the sliding window out, because the
block alone is shorter than the window: every round sees its whole context. With its own DFlashCache, as in generation,
transformers masks keys at a distance beyond the window. This script runs that path, in float64.

Needs: torch, transformers 5.23 or later, safetensors. Run from anywhere.
"""
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers.cache_utils import DFlashCache
from transformers.models.muse_glimmer_assistant.modeling_muse_glimmer_assistant import MuseGlimmerAssistantModel

DATA = Path(__file__).resolve().parent.parent / "tests/data"


def tensor_ending(tensors: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    return next(value for key, value in tensors.items() if key.endswith(name) and "vision" not in key).double()


def main() -> None:
    folder = DATA / "muse-glimmer-assistant"
    drafter = MuseGlimmerAssistantModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    target = load_file(DATA / "muse-glimmer/model.safetensors")
    embeddings = tensor_ending(target, "embed_tokens.weight")
    case = load_file(folder / "case.safetensors")
    out = {}
    for i in range(5):
        length = int(case[f"round{i}.context_length"][0])
        block = case[f"round{i}.block_ids"].long()
        cache = DFlashCache(config=drafter.config)
        cache.set_previous_accepted_tokens(length)
        with torch.no_grad():
            hidden = drafter(noise_embeds=embeddings[block][None],
                             context_hidden_states=case["taps"][:length].double()[None], cache=cache).last_hidden_state[0]
        out[f"round{i}.hidden"] = hidden.float().contiguous()
        difference = (hidden.float() - case[f"round{i}.hidden"]).abs().max().item()
        print(f"round {i}: context {length}, largest difference to the round without a window {difference:.2g}")
    save_file(out, folder / "window_case.safetensors")


if __name__ == "__main__":
    main()
