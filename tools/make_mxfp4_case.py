#!/usr/bin/env python3
"""Writes tests/data/gpt-oss-mxfp4: the gpt-oss fixture with its experts in MXFP4, laid out as published checkpoints are.

The experts are quantised by the gguf package. The reference is Hugging Face transformers in float64 on the weights that
the package reads back, so what is tested is the reading and the arithmetic, not the rounding of the weights.

    tools/make_mxfp4_case.py            then, for the same as GGUF:
    tools/fixture_to_gguf.py tests/data/gpt-oss OUT.gguf --experts mxfp4

Needs: torch, transformers 5.23 or later, safetensors, gguf, numpy.
"""
import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM

DATA = Path(__file__).resolve().parent.parent / "tests/data"
MXFP4 = gguf.GGMLQuantizationType.MXFP4


def published_blocks(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """GGUF rows of 17-byte blocks -> blocks [.., n, 16] with neighbours in one byte, and scales [.., n]."""
    rows = packed.reshape(*packed.shape[:-1], -1, 17)
    nibbles = np.concatenate([rows[..., 1:] & 15, rows[..., 1:] >> 4], axis=-1)  # in the order of the elements
    return nibbles[..., 0::2] | nibbles[..., 1::2] << 4, rows[..., 0]


def main() -> None:
    source, out = DATA / "gpt-oss", DATA / "gpt-oss-mxfp4"
    out.mkdir(exist_ok=True)
    weights = load_file(source / "model.safetensors")
    written, exact = {}, {}
    for name, value in weights.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            written[name] = exact[name] = value
            continue
        packed = quantize(np.ascontiguousarray(value.numpy().swapaxes(1, 2)), MXFP4)  # [experts, out, in]
        blocks, scales = published_blocks(packed)
        written[name + "_blocks"] = torch.from_numpy(np.ascontiguousarray(blocks))
        written[name + "_scales"] = torch.from_numpy(np.ascontiguousarray(scales))
        exact[name] = torch.from_numpy(np.ascontiguousarray(dequantize(packed, MXFP4).swapaxes(1, 2)))
    save_file(written, out / "model.safetensors", metadata={"format": "pt"})

    config = json.loads((source / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "mxfp4"}}, indent=1) + "\n")
    shutil.copy(source / "generation_config.json", out)
    model = GptOssForCausalLM(GptOssConfig(**config)).double().eval()
    model.config._attn_implementation = "eager"
    model.config._experts_implementation = "eager"  # the grouped one has no float64
    model.load_state_dict({k: v.double() for k, v in exact.items()})
    ids = load_file(source / "case.safetensors")["input_ids"].long()
    with torch.no_grad():
        logits = model(ids[None], use_cache=False).logits[0]
    layer = "model.layers.1.mlp.experts."
    save_file({"input_ids": ids.int(), "logits": logits.float().contiguous(),
               "gate_up_proj": exact[layer + "gate_up_proj"].float(), "down_proj": exact[layer + "down_proj"].float()},
              out / "mxfp4_case.safetensors")


if __name__ == "__main__":
    main()
