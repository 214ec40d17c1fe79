#!/usr/bin/env python3
"""Acceptance, tokens a step and speed of speculative decoding by block size, on held-out text.

One command, from anywhere, after ./run or a build has made the program:

    bench/speculation.py                     # the embedded glimmer-tiny and its drafter
    bench/speculation.py -m M.gguf -d D.gguf --text file.txt

Prompts are cut from a text that the model was not trained on, evenly spaced. For every way of guessing the same prompts
are continued, the ways taking turns within a round, so that a slow moment of the machine hits all of them. Times are
medians over the rounds. Writes docs/speculation.json (all numbers and conditions) and, where matplotlib is there,
docs/speculation.svg.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slipring", type=Path, help="the program (default: the newest build/*/slipring)")
    parser.add_argument("-m", "--model", help="GGUF file or folder (default: the embedded model)")
    parser.add_argument("-d", "--draft", help="its DFlash drafter (default: the embedded model's)")
    parser.add_argument("--text", type=Path, default=ROOT / "tests/data/glimmer-tiny/heldout.txt")
    parser.add_argument("--prompts", type=int, default=6, help="prompts cut from the text")
    parser.add_argument("--prompt-bytes", type=int, default=800)
    parser.add_argument("-n", "--predict", type=int, default=160, help="tokens generated for each prompt")
    parser.add_argument("--blocks", default="2,3,4,5,6,7,8", help="block sizes, the certain token included")
    parser.add_argument("--rounds", type=int, default=3, help="how often each run is timed")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/speculation")
    return parser.parse_args()


def newest_program() -> Path:
    programs = sorted(ROOT.glob("build/*/slipring"), key=lambda path: path.stat().st_mtime)
    if not programs:
        raise SystemExit("speculation.py: no build/*/slipring; build first, or name it with --slipring")
    return programs[-1]


def cut_prompts(text: str, count: int, size: int) -> list[str]:
    distance = max(1, (len(text) - size) // count)
    return [text[i * distance:i * distance + size].rsplit(" ", 1)[0] for i in range(count)]


def run(program: Path, arguments: list[str], prompt: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats.json"
        command = [str(program), "run", "-q", "--ignore-eos", "--stats-json", str(stats), *arguments]
        subprocess.run(command, input=prompt, text=True, check=True, stdout=subprocess.DEVNULL)
        return json.loads(stats.read_text())


def summary(runs: list[dict], repeats: list[list[float]]) -> dict:
    """Counts of one way of guessing over all prompts, and the median time of each prompt."""
    places = max((len(r["proposed_at"]) for r in runs), default=0)
    at = lambda key, place: sum(r[key][place] for r in runs if place < len(r[key]))
    proposed_at = [at("proposed_at", place) for place in range(places)]
    accepted_at = [at("accepted_at", place) for place in range(places)]
    seconds = sum(statistics.median(times) for times in repeats)
    tokens = sum(len(r["tokens"]) - 1 for r in runs)  # the first one comes from the prompt
    steps = sum(r["steps"] for r in runs)
    return {
        "tokens": tokens, "steps": steps, "tokens_per_step": tokens / steps,
        "proposed": sum(proposed_at), "accepted": sum(accepted_at),
        "proposed_at": proposed_at, "accepted_at": accepted_at,
        "acceptance_at": [a / p if p else 0.0 for a, p in zip(accepted_at, proposed_at)],
        "seconds": seconds, "tokens_per_second": tokens / seconds,
        "slowest_to_fastest": max(max(times) / min(times) for times in repeats),
    }


def measure(options: argparse.Namespace, program: Path, temperature: str, prompts: list[str]) -> dict[str, dict]:
    common = ["-n", str(options.predict), "-t", str(options.threads), "--temp", temperature, "--seed", "1"]
    if options.model:
        common += ["-m", options.model]
    drafter = ["-d", options.draft] if options.draft else []
    ways: dict[str, list[str]] = {"plain": ["--no-draft"]}
    if options.draft or not options.model:
        for block in options.blocks.split(","):
            ways[f"block {block}"] = [*drafter, "--draft-block", block]
        ways["automatic"] = [*drafter, "--draft-block", "0"]
    ways["n-gram, automatic"] = ["--ngram", "--draft-block", "0"]
    runs: dict[str, list[dict]] = {way: [] for way in ways}
    times: dict[str, list[list[float]]] = {way: [[] for _ in prompts] for way in ways}
    for repeat in range(options.rounds):
        for number, prompt in enumerate(prompts):
            expected = None
            for way, flags in ways.items():
                result = run(program, common + flags, prompt)
                expected = expected or result["tokens"]
                if result["tokens"] != expected:
                    raise SystemExit(f"speculation.py: {way} gives other tokens than plain decoding")
                times[way][number].append(result["decode_seconds"])
                if repeat == 0:
                    runs[way].append(result)
        print(f"temperature {temperature}: round {repeat + 1} of {options.rounds}", flush=True)
    return {way: summary(runs[way], times[way]) for way in ways}


def print_table(results: dict[str, dict]) -> None:
    for temperature, ways in results.items():
        plain = ways["plain"]["tokens_per_second"]
        print(f"\ntemperature {temperature}\n{'guesses':<20}{'tokens/step':>12}{'tokens/s':>10}{'to plain':>10}  accepted at 1, 2, ...")
        for way, values in ways.items():
            shares = " ".join(f"{share:.2f}" for share in values["acceptance_at"])
            print(f"{way:<20}{values['tokens_per_step']:>12.2f}{values['tokens_per_second']:>10.1f}"
                  f"{values['tokens_per_second'] / plain:>10.2f}  {shares}")


def plot(results: dict[str, dict], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no plot")
        return
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "slipring"  # the same picture from the same numbers
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for temperature, ways in results.items():
        blocks = {int(way.split()[1]): values for way, values in ways.items() if way.startswith("block ")}
        if not blocks:
            continue
        label = f"temperature {temperature}"
        longest = blocks[max(blocks)]["acceptance_at"]
        left.plot(range(1, len(longest) + 1), longest, marker="o", label=label)
        plain = ways["plain"]["tokens_per_second"]
        line, = right.plot(list(blocks), [v["tokens_per_second"] / plain for v in blocks.values()], marker="o", label=f"speed, {label}")
        right.plot(list(blocks), [v["tokens_per_step"] for v in blocks.values()], marker="x", linestyle=":",
                   color=line.get_color(), label=f"tokens a step, {label}")
        right.axhline(ways["automatic"]["tokens_per_second"] / plain, color=line.get_color(), linewidth=0.8, linestyle="--",
                      label=f"speed, automatic, {label}")
    left.set(xlabel="place in the block", ylabel="share of blocks accepted up to there", ylim=(0, 1), title="Acceptance")
    right.axhline(1.0, color="grey", linewidth=0.8)
    right.set(xlabel="block size", ylabel="times plain decoding", title="Speed and tokens a step", ylim=(0, None))
    right.set_ylim(0, 1.45 * right.get_ylim()[1])  # room for the legend
    left.legend(fontsize=7)
    right.legend(fontsize=7, ncols=2, loc="upper center")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")


def main() -> None:
    options = parse_arguments()
    program = options.slipring or newest_program()
    prompts = cut_prompts(options.text.read_text(), options.prompts, options.prompt_bytes)
    results = {t: measure(options, program, t, prompts) for t in options.temperatures.split(",")}
    conditions = {
        "model": options.model or "glimmer-tiny (embedded)", "drafter": options.draft or "embedded",
        "text": options.text.name, "prompts": options.prompts, "prompt_bytes": options.prompt_bytes,
        "predict": options.predict, "rounds": options.rounds, "threads": options.threads or os.cpu_count(),
        "machine": platform.machine(), "cores": os.cpu_count(), "load_at_the_end": os.getloadavg()[0],
        "version": subprocess.run([str(program), "--version"], text=True, capture_output=True, check=True).stdout.strip(),
    }
    options.out.with_suffix(".json").write_text(json.dumps({"conditions": conditions, "results": results}, indent=1) + "\n")
    print_table(results)
    plot(results, options.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
