#!/usr/bin/env python3
"""Mean squared error of slipring's quantiser and of llama.cpp's, on the same real weights.

usage: compare_quantisation.py --slipring build/release/src/cli/slipring MODEL.gguf ... [--types Q4_K_S ...]

Each model's matrices are decoded to float32 (the gguf package), written to a float32 GGUF, and quantised by
`slipring quantize`. Every tensor of the result is decoded again and compared with the float32 values, and so is what
llama.cpp (libggml-base of llama-cpp-python) makes of the same values in the same type. One line a type: the sums over
all tensors that have it. Needs: gguf, numpy, llama-cpp-python. Prints a Markdown table.
"""
import argparse
import collections
import ctypes
import pathlib
import subprocess
import tempfile

import gguf
import gguf.quants as quants
import numpy as np

TYPES = ["Q8_0", "Q6_K", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_S", "Q4_1", "Q4_0"]


def ggml_library():
    import llama_cpp

    library = next((pathlib.Path(llama_cpp.__file__).parent / "lib").glob("libggml-base.so*"))
    ggml = ctypes.CDLL(str(library))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
    ]
    return ggml


def ggml_quantise(ggml, values: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.empty(values.size // block * size, np.uint8)
    ggml.ggml_quantize_chunk(
        int(kind), values.ctypes.data, out.ctypes.data, 0, values.size // values.shape[-1], values.shape[-1], None
    )
    return out


def float_copy(source: gguf.GGUFReader, path: pathlib.Path) -> dict[str, np.ndarray]:
    """Writes the model's tensors as float32 and returns its matrices."""
    architecture = source.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_uint32(f"{architecture}.block_count", source.fields[f"{architecture}.block_count"].contents())
    matrices = {}
    for tensor in source.tensors:
        values = np.ascontiguousarray(quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        writer.add_tensor(tensor.name, values)
        if values.ndim >= 2:
            matrices[tensor.name] = values
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return matrices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--slipring", required=True)
    parser.add_argument("--types", nargs="+", default=TYPES)
    arguments = parser.parse_args()
    ggml = ggml_library()
    print("| model | type | weights | slipring | llama.cpp | ratio |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for model in arguments.models:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            plain = pathlib.Path(folder) / "f32.gguf"
            matrices = float_copy(gguf.GGUFReader(model), plain)
            ours, theirs, counts = (collections.defaultdict(float) for _ in range(3))
            for mix in arguments.types:
                packed = pathlib.Path(folder) / "packed.gguf"
                subprocess.run(
                    [arguments.slipring, "quantize", plain, packed, mix], check=True, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                for tensor in gguf.GGUFReader(packed).tensors:
                    kind = tensor.tensor_type
                    # A type counts in the mix of its own name alone, so that no tensor counts twice.
                    if tensor.name not in matrices or kind.name != mix.removesuffix("_S"):
                        continue
                    values = matrices[tensor.name]
                    got = quants.dequantize(tensor.data, kind).reshape(values.shape)
                    other = quants.dequantize(ggml_quantise(ggml, values, kind).reshape(tensor.data.shape), kind)
                    ours[kind.name] += float(np.square(got - values, dtype=np.float64).sum())
                    theirs[kind.name] += float(np.square(other.reshape(values.shape) - values, dtype=np.float64).sum())
                    counts[kind.name] += values.size
            for kind, count in counts.items():
                a, b = ours[kind] / count, theirs[kind] / count
                ratio = f"{a / b:.3f}" if b > 0 else "-"
                print(f"| {model.stem} | {kind} | {count:.3g} | {a:.4e} | {b:.4e} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
