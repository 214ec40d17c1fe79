#!/usr/bin/env python3
"""Writes src/tensor/iq_grids.cpp: the codebooks of the IQ types, as the gguf package decodes them.

usage: make_iq_grids.py > src/tensor/iq_grids.cpp   (then clang-format)
Needs: gguf, numpy.
"""
import gguf.quants as quants
import numpy as np

HEADER = """// Codebooks of the IQ block types, written by tools/make_iq_grids.py. Facts of the GGUF format.
// One entry a codeword; its elements, first in the lowest bits, are numbers of the levels in codec_iq.cpp.
#include "tensor/iq_grids.h"

namespace slipring {
"""


def table(name: str, kind, bits: int) -> str:
    kind.init_grid()
    levels = list(kind.grid_map)
    codes = [
        sum(levels.index(int(value)) << (bits * i) for i, value in enumerate(word))
        for word in np.asarray(kind.grid).reshape(kind.grid_shape)
    ]
    body = ", ".join(f"0x{code:04X}" for code in codes)
    return f"\nconst std::array<uint16_t, {len(codes)}> {name} = {{{body}}};\n"


print(HEADER, end="")
print(table("kIq3XxsGrid", quants.IQ3_XXS, 4), end="")
print(table("kIq3SGrid", quants.IQ3_S, 4), end="")
print(table("kIq2SGrid", quants.IQ2_S, 2), end="")
print("\n}  // namespace slipring")
