"""The corpus, from Debian's `bible` command (package bible-kjv, public domain), and its tokenizer."""

import re
import subprocess
from pathlib import Path

from common import SPECIAL_HEAD, SPECIAL_TAIL, VOCAB

# How text is cut before byte pairs are merged: the rule that GGUF calls "llama-bpe".
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_corpus() -> str:
    """One line a verse, without its number; a heading between empty lines for each chapter."""
    raw = subprocess.run(["bible", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
    lines: list[str] = []
    for line in raw.splitlines():
        verse = re.match(r"^ {1,3}\d+ (.*)", line)
        if verse:
            lines.append(verse.group(1).strip())
        elif re.match(r"^\w.* \d+$", line) and len(line) < 40:
            lines.append("\n" + line.strip() + "\n")
        elif line.strip() and lines:
            lines[-1] += " " + line.strip()
    return "\n".join(lines).strip() + "\n"


def write_corpus(folder: Path) -> None:
    """Writes folder/corpus.txt and trains folder/tokenizer on it: byte-level BPE of VOCAB tokens in all."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    text = read_corpus()
    (folder / "corpus.txt").write_text(text)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL_TAIL),
        special_tokens=list(SPECIAL_HEAD),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens(list(SPECIAL_TAIL))
    if tokenizer.get_vocab_size() != VOCAB:
        raise RuntimeError(f"the tokenizer has {tokenizer.get_vocab_size()} tokens, expected {VOCAB}")
    bos, eos, pad = SPECIAL_HEAD
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=pad)
    fast.save_pretrained(folder / "tokenizer")
