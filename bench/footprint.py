#!/usr/bin/env python3
"""Peak memory and time to the first token of `slipring run`, on a warm page cache.

    bench/footprint.py MODEL.gguf [MODEL.gguf ...] [--context 512] [--rounds 5]

Peak resident memory is compared with what cannot be avoided: the file, the keys and values held at the end, and one row of
logits. It is the most that the process ever held, the file's pages in it included. Time is from starting the program to its
end with one token generated, so it holds loading, repacking and the prompt. Medians. Linux only.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(program: str, model: str, prompt: list[str], predict: int) -> tuple[float, int, dict]:
    """Seconds, peak bytes and the program's own counts."""
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats.json"
        command = [program, "run", "-q", "-m", model, "-n", str(predict), "--ignore-eos", "--temp", "0",
                   "--stats-json", str(stats), *prompt]
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status != 0:
            raise SystemExit(f"footprint.py: {' '.join(command)} failed")
        return seconds, usage.ru_maxrss * 1024, json.loads(stats.read_text())


def warm(path: str) -> None:
    """Brings a file into the page cache; piece by piece, for a child's peak begins at its parent's size."""
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--slipring", default=str(ROOT / "build/release/slipring"))
    parser.add_argument("--context", type=int, default=512, help="tokens generated for the memory figure")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| model | file MB | KV MB | peak MB | peak / (file + KV + logits) | load to first token s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for model in options.models:
        warm(model)
        first = [run(options.slipring, model, ["-p", "Once upon a time"], 1)[0] for _ in range(options.rounds)]
        _, peak, stats = run(options.slipring, model, ["-p", "Once upon a time"], options.context)
        inspect = json.loads(subprocess.run([options.slipring, "inspect", "-m", model, "--json"], check=True, text=True,
                                            capture_output=True).stdout)
        size = Path(model).stat().st_size
        bound = size + stats["kv_bytes"] + 4 * inspect["vocab_size"]
        print(f"| {Path(model).name} | {size / 1e6:.1f} | {stats['kv_bytes'] / 1e6:.1f} | {peak / 1e6:.1f} | "
              f"{peak / bound:.3f} | {statistics.median(first):.2f} |", flush=True)


if __name__ == "__main__":
    main()
