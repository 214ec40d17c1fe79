#!/usr/bin/env python3
"""Compares slipring's token ids with those of other tokenizers, on random and on nasty strings.

  check_tokenizer.py hf FOLDER...        tokenizer.json, against Hugging Face tokenizers
  check_tokenizer.py rules               tokenizer.json files made here, one for each split rule and option
  check_tokenizer.py gguf FILE...        GGUF metadata, against llama.cpp (llama-cpp-python)
  check_tokenizer.py pieces FILE...      a SentencePiece GGUF, against its vocabulary run by Hugging Face tokenizers

Needs the build folder's slipring_tokenize_lines (--binary) and the Python packages named above.
Exits with 1 if any id differs.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

NASTY = (
    ["\t" * 6 + "test", "\r\n\r\n", "a  b   c", "don't", "DON'T", "camelCase", "CamelCASEWord", "1234567", "a/\n\n", "",
     "नमस्ते", "ที่", "עִבְרִית", "e\u0301", "\u3000x", "\u00a0x", "\ufeffx", "a\u200db", "x\u180ey", "we'Ll'S", "'ſ k'ſ",
     "½ ² ①", "a_b", "\x1c\x1d", "\x00", "日本語", "👩‍👩‍👧‍👦 🇬🇧", "İstanbul ǅ", " \u2028\u2029 ", "…«»", "x\u0345y"]
    + [" " * n + "x" for n in range(1, 33)] + ["\n" * n for n in range(1, 6)] + [" " * n for n in range(1, 70)]
)
ALPHABETS = [
    "abcdefghij ABC", " \t\n\r\u00a0\u3000\u2028x", "0123456789a ", "'sStTrReEvVmMlLdD ſ", "!?.,/\\-_()[]{}#*+<>|^~`$ \n",
    "éèüñçßſĲǅ", "नमस्तेที่עִבְרִית", "あ漢字한글カ ", "😀👩\u200d🇬\u0301\ufe0f", "\u0300\u0301\u0345\u20dd a", "½²①Ⅷ٣৪ 1",
    "\u180e\u200b\ufeff\x85\x1c ", "▁ a",
]


def strings(count, seed, added, mark):
    chance = random.Random(seed)
    yield from (s for s in NASTY)
    for _ in range(count):
        parts = []
        for _ in range(chance.randint(1, 6)):
            kind = chance.random()
            if kind < 0.15 and added:
                parts.append(chance.choice(added))
            elif kind < 0.25:
                parts.append(chr(chance.choice([chance.randrange(0x20, 0x3000), chance.randrange(0x3000, 0xD800),
                                                chance.randrange(0xE000, 0x11000), chance.randrange(0x1F000, 0x20000)])))
            else:
                alphabet = chance.choice(ALPHABETS)
                parts.append("".join(chance.choice(alphabet) for _ in range(chance.randint(1, 12))))
        text = "".join(parts)
        yield text if mark else text.replace("▁", "")


def ours(binary, model, questions):
    lines = "".join(json.dumps({"hex": t.encode().hex(), "parse": p}) + "\n" for t, p in questions)
    done = subprocess.run([binary, model], input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{model}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(name, binary, model, questions, reference, round_trip=True):
    wrong = 0
    answers = ours(binary, str(model), questions)
    assert len(answers) == len(questions)
    for (text, parse), answer in zip(questions, answers):
        expected = reference(text, parse)
        back = bytes.fromhex(answer.get("decoded", "")).decode("utf-8", "replace")
        if answer.get("ids") != expected:
            problem = f"{answer} instead of {expected}"
        elif round_trip and back != text:
            problem = f"decoded to {back!r}"
        else:
            continue
        wrong += 1
        if wrong <= 5:
            print(f"  {text!r} parse={parse}: {problem}"[:600])
    print(f"{name}: {len(questions)} texts, {wrong} differ")
    return wrong


def check_hf(binary, folder, count, seed, name=None, round_trip=True):
    from tokenizers import Tokenizer

    path = pathlib.Path(folder) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    added = [t["content"] for t in json.loads(path.read_text())["added_tokens"]]
    plain = Tokenizer.from_file(str(path))
    plain.encode_special_tokens = True
    questions = [(t, p) for t in strings(count, seed, added, False) for p in (True, False)]

    def reference(text, parse):
        return (tokenizer if parse else plain).encode(text, add_special_tokens=False).ids

    return compare(name or str(folder), binary, folder, questions, reference, round_trip)


def check_rules(binary, count, seed):
    """Trains a small tokenizer on the nasty strings for each way of cutting text."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    corpus = list(strings(3000, seed + 1, [], False)) * 2 + ["the quick brown fox jumps over the lazy dog " * 3] * 20
    split = pre_tokenizers.Split
    llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
    o200k = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
             r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    byte_rules = {
        "gpt2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "llama3": [split(Regex(llama3), "isolated"), bytes_only],
        "o200k": [split(Regex(o200k), "isolated"), bytes_only],
        "digits": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "digit runs": [pre_tokenizers.Digits(individual_digits=False), bytes_only],
        "punctuation": [pre_tokenizers.Punctuation("isolated"), bytes_only],
        "word classes": [split(Regex(r"\w+|\s|[^\w\s]"), "isolated"), bytes_only],
        **{f"split {b}{' inverted' if i else ''}": [split(Regex(r"[ ,]"), b, invert=i), bytes_only]
           for b in ("isolated", "merged_with_previous", "merged_with_next", "contiguous") for i in (False, True)},
        "split string": [split(".", "merged_with_previous"), bytes_only],
    }
    lossy_rules = {
        "prefix space": [pre_tokenizers.ByteLevel(add_prefix_space=True)],
        "removed": [split(Regex(r"\s+"), "removed"), bytes_only],
        "whitespace": [pre_tokenizers.Whitespace(), bytes_only],
        "whitespace split": [pre_tokenizers.WhitespaceSplit(), bytes_only],
    }
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        def save_and_check(name, tokenizer, round_trip):
            tokenizer.save(str(pathlib.Path(folder) / "tokenizer.json"))
            return check_hf(binary, folder, count, seed, "rule " + name, round_trip)

        for name, rules in {**byte_rules, **lossy_rules}.items():
            tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(rules)
            tokenizer.decoder = decoders.ByteLevel()
            tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
                vocab_size=900, show_progress=False, special_tokens=["<|eot|>", "<s>"],
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
            stripped = name == "gpt2"
            tokenizer.add_tokens([AddedToken("<tool>", normalized=False, special=False),
                                  AddedToken("<wide>", normalized=False, special=False, lstrip=stripped, rstrip=stripped),
                                  AddedToken("word", normalized=False, special=False, single_word=True)])
            wrong += save_and_check(name, tokenizer, name in byte_rules and not stripped)

        mark = "▁"
        replace = normalizers.Replace(" ", mark)
        tail = [decoders.Replace(mark, " "), decoders.ByteFallback(), decoders.Fuse()]
        piece_rules = {
            "gemma": (replace, split(" ", "merged_with_previous"), decoders.Sequence(tail)),
            "llama2": (normalizers.Sequence([normalizers.Prepend(mark), replace]), None,
                       decoders.Sequence(tail + [decoders.Strip(" ", 1, 0)])),
            "metaspace always": (None, pre_tokenizers.Metaspace(mark, "always", split=True),
                                 decoders.Metaspace(mark, "always")),
            "metaspace first": (None, pre_tokenizers.Metaspace(mark, "first", split=False),
                                decoders.Metaspace(mark, "first")),
            "metaspace never": (None, pre_tokenizers.Metaspace(mark, "never", split=True),
                                decoders.Metaspace(mark, "never")),
        }
        byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
        for name, (normalizer, rule, decoder) in piece_rules.items():
            tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
            if normalizer:
                tokenizer.normalizer = normalizer
            tokenizer.pre_tokenizer = rule or split(Regex(r"[^▁]▁"), "isolated")
            tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
                vocab_size=1200, show_progress=False, special_tokens=["<unk>", "<s>"] + byte_tokens, limit_alphabet=150))
            # Byte tokens are part of the vocabulary, not added ones; and without a rule the pre-tokenizer goes again.
            saved = json.loads(tokenizer.to_str())
            saved["added_tokens"] = [t for t in saved["added_tokens"] if t["content"] not in byte_tokens]
            saved["decoder"] = json.loads(decoder.__getstate__()) if hasattr(decoder, "__getstate__") else None
            if rule is None:
                saved["pre_tokenizer"] = None
            tokenizer = Tokenizer.from_str(json.dumps(saved))
            tokenizer.add_tokens([AddedToken("<tool>", normalized=False, special=False),
                                  AddedToken("a b", normalized=True, special=False)])
            wrong += save_and_check(name, tokenizer, False)
    return wrong


def check_gguf(binary, path, count, seed):
    import llama_cpp

    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    added = ["<bos>", "<eos>", "<end_of_turn>", "<|im_end|>", "<|im_start|>", "<|eot|>", "[multimodal]", "<unused5>"]
    questions = [(t, p) for t in strings(count, seed, added, False) for p in (True, False) if "\0" not in t]

    def reference(text, parse):
        return model.tokenize(text.encode(), add_bos=False, special=parse)

    return compare(f"{path} against llama.cpp", binary, path, questions, reference)


def check_pieces(binary, path, count, seed):
    """Makes merges from the pieces' scores, as the converters of such vocabularies do."""
    import gguf
    from tokenizers import AddedToken, Tokenizer, models, normalizers

    fields = gguf.GGUFReader(str(path)).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    # The converters to GGUF overwrite the score of user-defined pieces, which was 0: they join before all others.
    scores = [0.0 if k == 4 else s for s, k in zip(fields["tokenizer.ggml.scores"].contents(), kinds)]
    vocab = {(t.replace(" ", "▁") if k == 4 else t): i for i, (t, k) in enumerate(zip(tokens, kinds))}
    pieces = {t: i for t, i in vocab.items() if kinds[i] in (1, 4, 5)}
    merges = []
    for text, i in pieces.items():
        pairs = [(text[:n], text[n:]) for n in range(1, len(text)) if text[:n] in pieces and text[n:] in pieces]
        merges += [(-scores[i], i, pieces[a], pieces[b], a, b) for a, b in pairs]
    merges.sort()
    tokenizer = Tokenizer(models.BPE(vocab, [(a, b) for *_, a, b in merges], unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.add_special_tokens([t for t, k in zip(tokens, kinds) if k == 3])
    tokenizer.add_tokens([AddedToken(t.replace(" ", "▁"), normalized=False, special=False)
                          for t, k in zip(tokens, kinds) if k == 4])
    added = ["<bos>", "<eos>", "<end_of_turn>", "[multimodal]", "<unused5>", "  ", "\n\n"]
    # Runs longer than the longest run piece (31): merges halve them, SentencePiece takes the longest piece first.
    questions = [(t, p) for t in strings(count, seed, added, False) for p in (True, False) if " " * 32 not in t]

    def reference(text, parse):
        tokenizer.encode_special_tokens = not parse
        return tokenizer.encode(text, add_special_tokens=False).ids

    return compare(f"{path} against its pieces", binary, path, questions, reference)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=["hf", "rules", "gguf", "pieces"])
    arguments.add_argument("models", nargs="*")
    arguments.add_argument("--binary", default="build/release/src/text/slipring_tokenize_lines")
    arguments.add_argument("--count", type=int, default=2000, help="random texts for each check")
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    if given.what == "rules":
        return check_rules(given.binary, given.count, given.seed)
    check = {"hf": check_hf, "gguf": check_gguf, "pieces": check_pieces}[given.what]
    return sum(check(given.binary, model, given.count, given.seed) for model in given.models)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
