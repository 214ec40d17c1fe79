#!/usr/bin/env python3
"""Writes tests/data/codec/cases.safetensors: blocks of every quantised type, and the floats that they stand for.

usage: make_codec_cases.py > tests/data/codec/cases.safetensors
For each type T: "T.blocks" [bytes] uint8 and "T.floats" [elements] float32, by the gguf package's dequantisation.
The blocks are random bits, so every field takes every kind of value; the half-precision scales are kept finite.
Needs: gguf, numpy, safetensors.
"""
import sys

import gguf
import gguf.quants as quants
import numpy as np
from safetensors.numpy import save

BLOCKS = 6
# Byte offsets of the float16 fields of a block.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ2_S": [0], "MXFP4": [],
}

random = np.random.default_rng(20)
tensors = {}
for name, halves in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    # Codebook types take more blocks, to meet most codewords.
    blocks = random.integers(0, 256, size=(BLOCKS * (2 if name.startswith("IQ") else 1), size), dtype=np.uint8)
    for at in halves:
        values = random.normal(0, 0.05, len(blocks)).astype(np.float16)
        values[0] = np.float16(3e-6)  # subnormal
        blocks[:, at : at + 2] = values.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:3, 0] = [0, 1, 120]
        blocks[3:, 0] = np.minimum(blocks[3:, 0], 250)
    floats = quants.dequantize(blocks, kind).astype(np.float32).ravel()
    assert np.isfinite(floats).all(), name
    tensors[name + ".blocks"] = blocks.ravel()
    tensors[name + ".floats"] = floats
sys.stdout.buffer.write(save(tensors))
