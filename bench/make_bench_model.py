#!/usr/bin/env python3
"""Writes a Muse Glimmer of 0.5 B parameters with random weights, as float16 GGUF, for timing only: its text is worthless, its cost is
that of a real model of this shape.

    python bench/make_bench_model.py OUT.gguf

`slipring quantize OUT.gguf OUT-q4.gguf Q4_K_M` makes the smaller ones. Needs numpy and gguf.
"""
import sys

import gguf
import numpy as np

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM = 16, 1536, 4608, 12, 2, 128
VOCABULARY, WINDOW, CONTEXT = 32768, 1024, 131072


def byte_letters() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    w = gguf.GGUFWriter(sys.argv[1], "muse-glimmer")
    w.add_name("muse-glimmer-bench")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_block_count(LAYERS)
    w.add_context_length(CONTEXT)
    w.add_vocab_size(VOCABULARY)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_final_logit_softcapping(20.0)
    w.add_logit_scale((HIDDEN / 256) ** -0.5)
    w.add_sliding_window(WINDOW)
    w.add_sliding_window_pattern([(i + 1) % 4 != 0 for i in range(LAYERS)])

    letters = byte_letters()
    words = [f"<|t{i}|>" for i in range(VOCABULARY - 2 - len(letters))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(["<|begin_of_text|>", "<|end_of_text|>", *letters, *words])
    kinds = gguf.TokenType
    w.add_token_types([kinds.CONTROL] * 2 + [kinds.NORMAL] * len(letters) + [kinds.USER_DEFINED] * len(words))
    w.add_token_merges(["t h"])
    w.add_bos_token_id(0)
    w.add_eos_token_id(1)

    rng = np.random.default_rng(1)

    def matrix(name: str, rows: int, cols: int, scale: float | None = None) -> None:
        values = rng.standard_normal((rows, cols), dtype=np.float32) * (scale or cols**-0.5)
        w.add_tensor(name, values.astype(np.float16))

    def norm(name: str) -> None:
        w.add_tensor(name, 1 + 0.1 * rng.standard_normal(HIDDEN, dtype=np.float32))

    matrix("token_embd.weight", VOCABULARY, HIDDEN, 1.0)
    matrix("output.weight", VOCABULARY, HIDDEN)
    norm("output_norm.weight")
    for i in range(LAYERS):
        p = f"blk.{i}."
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            norm(p + name + ".weight")
        for name, rows, cols in (
            ("attn_q", HEADS * HEAD_DIM, HIDDEN),
            ("attn_gate", HEADS * HEAD_DIM, HIDDEN),
            ("attn_k", KV_HEADS * HEAD_DIM, HIDDEN),
            ("attn_v", KV_HEADS * HEAD_DIM, HIDDEN),
            ("attn_output", HIDDEN, HEADS * HEAD_DIM),
            ("ffn_gate", INNER, HIDDEN),
            ("ffn_up", INNER, HIDDEN),
            ("ffn_down", HIDDEN, INNER),
        ):
            matrix(p + name + ".weight", rows, cols)
        w.add_tensor(p + "attn_q_norm.weight", np.full(HEAD_DIM, 3.87, np.float32))
        w.add_tensor(p + "attn_k_norm.weight", np.ones(HEAD_DIM, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
