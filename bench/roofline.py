#!/usr/bin/env python3
"""The roofline table, docs/roofline.md: what share of memory bandwidth or of peak arithmetic each kernel reaches.

    cmake --preset bench && cmake --build build/bench --target slipring_kernels_bench
    bench/roofline.py [--repetitions 5] > docs/roofline.md

Runs the kernels' benchmarks in random order, so that a slow moment of the machine does not hit one of them alone, and prints
medians. Bandwidth is what a plain loop over 256 MB reads in the same run; peak arithmetic is a loop of the same instructions
in registers.
"""
import argparse
import datetime
import json
import subprocess
from pathlib import Path

from machine import cpu_name

ROOT = Path(__file__).resolve().parent.parent
MATRICES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q3_K", "IQ4_XS", "MXFP4"]
KINDS = ["decode", "decode_layers", "verify8", "prefill512"]
ATTENTION = ["decode/muse_4_full/depth:4096/threads:2", "decode/muse_12_sliding_1024/depth:4096/threads:2",
             "decode/smol_30_full/depth:2048/threads:2", "decode/gemma_3_full/depth:8192/threads:2",
             "decode/gemma_15_sliding_512/depth:8192/threads:2", "prefill/muse_full/depth:4096/threads:2",
             "prefill/muse_sliding_1024/depth:4096/threads:2", "prefill/smol_full/depth:2048/threads:2",
             "prefill/gemma_sliding_512/depth:4096/threads:2"]


def medians(program: str, pattern: str, repetitions: int) -> tuple[dict, dict[str, dict]]:
    out = subprocess.run(
        [program, f"--benchmark_filter={pattern}", "--benchmark_format=json", "--benchmark_min_time=0.1",
         f"--benchmark_repetitions={repetitions}", "--benchmark_enable_random_interleaving=true"],
        check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    result = json.loads(out)
    rows = {row["run_name"].removesuffix("/real_time"): row for row in result["benchmarks"]
            if row.get("aggregate_name") == "median"}
    return result["context"], rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/bench/src/kernels/slipring_kernels_bench"))
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    pattern = f"^(({'|'.join(KINDS)})/({'|'.join(MATRICES)})|read)/real_time$"
    context, rows = medians(options.program, pattern, options.repetitions)
    read = rows["read"]["GB/s"]
    int8 = float(context["quantised GMAC/s"])
    floats = float(context["float GMAC/s"])
    print(f"# Roofline\n\n{cpu_name()}, {datetime.date.today().isoformat()}; written by `bench/roofline.py`.\n")
    print(f"Target {context['slipring target']}, {context['threads']} threads: reads {read:.1f} GB/s, "
          f"{floats:.0f} G float32 and {int8:.0f} G int8 multiply-adds a second; medians of {options.repetitions}.\n")
    print("Matrices. Decode is one row of activations against 65536 x 1536 weights, or against 48 matrices of 1536 x 1536 in "
          "turn as in a model; verify is 8 rows, prefill 512.\n")
    print("| weights | decode GB/s | of bandwidth | in turn | of bandwidth | verify GMAC/s | of peak | prefill GMAC/s | of peak |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in MATRICES:
        if f"decode/{name}" not in rows:
            continue
        peak = floats if name in ("F32", "F16", "BF16") else int8
        cells = [name]
        for kind in KINDS[:2]:
            speed = rows[f"{kind}/{name}"]["GB/s"]
            cells += [f"{speed:.1f}", f"{100 * speed / read:.0f} %"]
        for kind in KINDS[2:]:
            speed = rows[f"{kind}/{name}"]["GMAC/s"]
            cells += [f"{speed:.0f}", f"{100 * speed / peak:.0f} %"]
        print("| " + " | ".join(cells) + " |")
    _, rows = medians(options.program, f"^({'|'.join(ATTENTION)})/real_time$", options.repetitions)
    print("\nAttention, f16 keys and values. Decode reads each key and value once; prefill is 512 queries in one layer.\n")
    print("| layers | depth | GB/s | of bandwidth | GFLOP/s | of float peak |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in ATTENTION:
        row = rows[name]
        kind, layers, depth, _ = name.split("/")
        print(f"| {kind}, {layers.replace('_', ' ')} | {depth.split(':')[1]} | {row['GB/s']:.1f} | {100 * row['GB/s'] / read:.0f} % "
              f"| {row['GFLOP/s']:.0f} | {100 * row['of_peak']:.0f} % |")


if __name__ == "__main__":
    main()
