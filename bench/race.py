#!/usr/bin/env python3
"""Races slipring against llama.cpp (llama-cpp-python) on the same files, threads and depths, and writes the table and the plot
of docs/performance.md.

    python bench/race.py --slipring build/release/slipring --threads 2 --rounds 5 \\
        muse-q8=MODEL.gguf:0,4096 gemma=MODEL.gguf:0,8192 --out docs

Each MODEL is NAME=PATH:DEPTH,DEPTH,... Rounds alternate between the two engines, so that a machine that slows down slows both;
figures are medians over the rounds and ratios of those medians. Needs: llama-cpp-python, numpy; matplotlib for the plot.
"""
from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from machine import cpu_name

PROMPT, DECODE = 512, 64


def slipring_round(binary: str, model: str, threads: int, depth: int) -> dict[str, float]:
    out = subprocess.run(
        [binary, "bench", "-m", model, "-p", str(PROMPT), "-n", str(DECODE), "-d", str(depth), "-r", "1", "-t", str(threads),
         "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)[0]


class LlamaCpp:
    """One loaded model of the peer: f16 cache, batches of 512, its own window cache for sliding layers."""

    def __init__(self, model: str, threads: int, context: int, flash: bool):
        import llama_cpp
        self.llama = llama_cpp.Llama(model_path=model, n_ctx=context, n_batch=PROMPT, n_ubatch=PROMPT, n_threads=threads,
                                     n_threads_batch=threads, verbose=False, flash_attn=flash, logits_all=False)
        self.vocab = self.llama.n_vocab()

    def fill(self, depth: int) -> None:
        """Brings the context to `depth` tokens (one, for depth 0: decoding needs something to stand on)."""
        import numpy as np
        self.tokens = np.random.default_rng(1).integers(0, self.vocab, depth + max(PROMPT, DECODE) + 1).tolist()
        self.depth = max(depth, 1)
        self.llama.reset()
        self.llama.eval(self.tokens[:self.depth])

    def back(self, length: int) -> None:
        """Drops what was added after `length` tokens; the peer keeps all positions of sliding layers, so nothing is lost."""
        self.llama._ctx.kv_cache_seq_rm(-1, length, -1)
        self.llama.n_tokens = length

    def round(self) -> dict[str, float]:
        depth, result = self.depth, {}
        self.back(depth if depth > 1 else 0)
        start = time.perf_counter()
        self.llama.eval(self.tokens[depth:depth + PROMPT])
        result["prefill_tok_s"] = PROMPT / (time.perf_counter() - start)
        self.back(depth)
        start = time.perf_counter()
        for token in self.tokens[depth:depth + DECODE]:
            self.llama.eval([token])
        result["decode_tok_s"] = DECODE / (time.perf_counter() - start)
        return result


def race(args: argparse.Namespace) -> None:
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = earlier_rows(out / "race.json", conditions(args))
    for spec in args.models:
        name, rest = spec.split("=", 1)
        path, depths = rest.rsplit(":", 1)
        depth_list = [int(d) for d in depths.split(",")]
        peers = {f: LlamaCpp(path, args.threads, max(depth_list) + PROMPT + 8, f) for f in ((False, True) if args.flash else (False,))}
        for depth in depth_list:
            ours: dict[str, list[float]] = {"prefill_tok_s": [], "decode_tok_s": []}
            theirs: dict[bool, dict[str, list[float]]] = {f: {"prefill_tok_s": [], "decode_tok_s": []} for f in peers}
            share = []
            for peer in peers.values():
                peer.fill(depth)
                peer.round()  # warm
            for index in range(args.rounds):
                mine = slipring_round(args.slipring, path, args.threads, depth)
                share.append(mine["bandwidth_share"])
                for key in ours:
                    ours[key].append(mine[key])
                for flash, peer in peers.items():
                    for key, value in peer.round().items():
                        theirs[flash][key].append(value)
                print(f"{name} depth {depth} round {index + 1}/{args.rounds}: slipring {mine['prefill_tok_s']:.0f} / "
                      f"{mine['decode_tok_s']:.1f}", file=sys.stderr, flush=True)
            row = {"model": name, "depth": depth, "bandwidth_share": statistics.median(share)}
            for key in ours:
                row[key] = statistics.median(ours[key])
                # The peer with its better setting.
                row["llama_" + key] = max(statistics.median(theirs[f][key]) for f in peers)
                row["ratio_" + key] = row[key] / row["llama_" + key]
            same = [i for i, r in enumerate(rows) if (r["model"], r["depth"]) == (name, depth)]
            if same:
                rows[same[0]] = row
            else:
                rows.append(row)
            rows.sort(key=lambda r: (r["model"], r["depth"]))
            print(table([row]), flush=True)
            write(rows, args)  # now: what was measured is not lost if the next model fails
        peers.clear()  # before the next model is loaded
    plot(rows, out / "race.svg")


def earlier_rows(path: Path, under: str) -> list[dict]:
    """Rows of an earlier call under the same conditions on the same day: a race may be run a model at a time."""
    if not path.exists():
        return []
    earlier = json.loads(path.read_text())
    return earlier["rows"] if earlier["conditions"] == under else []


def conditions(args: argparse.Namespace) -> str:
    import llama_cpp
    return (f"{cpu_name()}, {args.threads} threads, {platform.system()} {platform.release().split('-')[0]}, "
            f"{datetime.date.today().isoformat()}; llama-cpp-python {llama_cpp.__version__}"
            f"{', the better of flash attention on and off' if args.flash else ''}; keys and values f16; "
            f"prefill of {PROMPT} tokens, decode of {DECODE}; medians of {args.rounds} alternating rounds")


def write(rows: list[dict], args: argparse.Namespace) -> None:
    out = Path(args.out)
    (out / "race.json").write_text(json.dumps({"conditions": conditions(args), "rows": rows}, indent=1) + "\n")
    (out / "race.md").write_text(f"{conditions(args)}.\n\n{table(rows)}\n")


def table(rows: list[dict]) -> str:
    lines = ["| model | depth | prefill tok/s | llama.cpp | ratio | decode tok/s | llama.cpp | ratio | share of read bandwidth |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for r in rows:
        lines.append(f"| {r['model']} | {r['depth']} | {r['prefill_tok_s']:.0f} | {r['llama_prefill_tok_s']:.0f} | "
                     f"{r['ratio_prefill_tok_s']:.2f} | {r['decode_tok_s']:.1f} | {r['llama_decode_tok_s']:.1f} | "
                     f"{r['ratio_decode_tok_s']:.2f} | {100 * r['bandwidth_share']:.0f} % |")
    return "\n".join(lines)


def plot(rows: list[dict], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no plot", file=sys.stderr)
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, 2, figsize=(11, 1.2 + 0.55 * len(rows)), sharey=True)
    places = range(len(rows))
    for axis, key, title in zip(axes, ("prefill_tok_s", "decode_tok_s"), ("prefill", "decode")):
        axis.barh([i + 0.2 for i in places], [r["llama_" + key] for r in rows], 0.4, label="llama.cpp", color="#9aa5b1")
        axis.barh([i - 0.2 for i in places], [r[key] for r in rows], 0.4, label="slipring", color="#2b7a78")
        for i, r in enumerate(rows):
            axis.text(r[key], i - 0.2, f" {r['ratio_' + key]:.2f}x", va="center", fontsize=8)
        axis.set_yticks(list(places), [f"{r['model']}, depth {r['depth']}" for r in rows], fontsize=8)
        axis.margins(x=0.12)
        axis.set_title(f"{title}, tokens a second")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    axes[1].legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=PATH:DEPTHS")
    parser.add_argument("--slipring", default="build/release/slipring")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flash", action="store_true", help="let llama.cpp run with flash attention on and off, and count the better")
    parser.add_argument("--out", default="docs", help="folder of race.json, race.md and race.svg")
    args = parser.parse_args()
    race(args)


if __name__ == "__main__":
    main()
