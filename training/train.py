"""Trains glimmer-tiny, the model that comes with slipring, and its drafter. See README.md for the order of the steps."""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that all steps share")
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("corpus", help="write the corpus and train the tokenizer")
    add_step(steps, "target", "tokens", 4_000_000, "train the target (about an hour on two cores)")
    add_step(steps, "generate", "tokens", 250_000, "sample text from the target for the drafter to learn from")
    add_step(steps, "drafter", "sequences", 12_000, "train the drafter, or go on where it stopped")
    add_step(steps, "accept", "tokens", 400, "measure tokens per verify")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    # Imported here, so that --help needs no torch.
    if arguments.step == "corpus":
        from corpus import write_corpus

        write_corpus(arguments.out)
    elif arguments.step == "target":
        from target import train_target

        train_target(arguments.out, arguments.tokens)
    elif arguments.step == "generate":
        from target import generate

        generate(arguments.out, arguments.tokens)
    elif arguments.step == "drafter":
        from drafter import train_drafter

        train_drafter(arguments.out, arguments.sequences)
    else:
        from drafter import measure_acceptance

        measure_acceptance(arguments.out, arguments.tokens)


def add_step(steps: argparse._SubParsersAction, name: str, unit: str, default: int, words: str) -> None:
    step = steps.add_parser(name, help=words)
    step.add_argument(f"--{unit}", type=int, default=default, help=f"how many (default {default})")


if __name__ == "__main__":
    main()
