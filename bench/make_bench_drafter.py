#!/usr/bin/env python3
"""Writes a random-weight DFlash drafter for a Muse Glimmer GGUF, for timing only: its guesses are worthless, its cost is real.

    python bench/make_bench_drafter.py TARGET.gguf OUT.gguf [LAYERS]

Shapes are the target's. LAYERS defaults to the published share of 5 drafter layers for 52 of the target, rounded up. Weights are
Q8_0. Needs numpy and gguf.
"""
import math
import sys

import gguf
import numpy as np


def main() -> None:
    target, out = sys.argv[1], sys.argv[2]
    reader = gguf.GGUFReader(target)

    def fact(name: str):
        return reader.fields[f"muse-glimmer.{name}"].contents()

    layers = fact("block_count")
    hidden, inner = fact("embedding_length"), fact("feed_forward_length")
    heads, kv_heads, head_dim = fact("attention.head_count"), fact("attention.head_count_kv"), fact("attention.key_length")
    count = int(sys.argv[3]) if len(sys.argv) > 3 else math.ceil(layers * 5 / 52)
    taps = [layers // 4, layers // 2, layers - 2]
    vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()

    w = gguf.GGUFWriter(out, "dflash")
    w.add_block_count(count)
    w.add_context_length(fact("context_length"))
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(inner)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_uint32("dflash.block_size", 8)
    w.add_array("dflash.target_layers", [t + 1 for t in taps])
    w.add_sliding_window(fact("attention.sliding_window"))
    w.add_uint32("tokenizer.ggml.mask_token_id", len(vocabulary) - 1)

    rng = np.random.default_rng(5)

    def matrix(name: str, rows: int, cols: int) -> None:
        values = rng.standard_normal((rows, cols), dtype=np.float32) * cols ** -0.5
        w.add_tensor(name, gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    def norm(name: str, size: int) -> None:
        w.add_tensor(name, np.ones(size, np.float32))

    matrix("fc.weight", hidden, hidden * len(taps))
    norm("enc.output_norm.weight", hidden)
    norm("output_norm.weight", hidden)
    for i in range(count):
        p = f"blk.{i}."
        for name in ("attn_norm", "ffn_norm"):
            norm(p + name + ".weight", hidden)
        for name in ("attn_q_norm", "attn_k_norm"):
            norm(p + name + ".weight", head_dim)
        matrix(p + "attn_q.weight", heads * head_dim, hidden)
        matrix(p + "attn_k.weight", kv_heads * head_dim, hidden)
        matrix(p + "attn_v.weight", kv_heads * head_dim, hidden)
        matrix(p + "attn_output.weight", hidden, heads * head_dim)
        matrix(p + "ffn_gate.weight", inner, hidden)
        matrix(p + "ffn_up.weight", inner, hidden)
        matrix(p + "ffn_down.weight", hidden, inner)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
