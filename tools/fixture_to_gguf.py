#!/usr/bin/env python3
"""Writes a Hugging Face fixture folder of tests/data as GGUF, with the keys and tensor names that published files have.

    tools/fixture_to_gguf.py tests/data/gemma2 OUT/gemma2-f32.gguf [--f16] [--experts mxfp4]

Needs the Python packages numpy, gguf and safetensors; nothing here is needed to build, run or test slipring.
Facts that GGUF has no key for are folded into the weights: Gemma's query_pre_attn_scalar goes into q, for Gemma 3 by
way of q's norm.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import load_file

ARCHITECTURES = {
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "olmo3": "olmo2",
    "cohere2": "cohere2",
    "gpt_oss": "gpt-oss",
    "mistral": "llama",
}

GEMMAS = ("gemma2", "gemma3_text")

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks",
    "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.router": "ffn_gate_inp",
}


def post_attention_name(family):
    """Families with norms on both sides, and gpt-oss, name it so; in the others it is the norm in front of the MLP."""
    return "post_attention_norm" if family in (*GEMMAS, "olmo3", "gpt_oss") else "ffn_norm"


def interleave(weight, heads):
    """Rows of each head from (first half, second half) to pairs, for the interleaved rotation."""
    dim = weight.shape[0] // heads
    return weight.reshape(heads, 2, dim // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def tensors_of(family, config, weights):
    """(GGUF name, array) of every tensor."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    for name, value in weights.items():
        if name == "model.embed_tokens.weight":
            yield "token_embd.weight", value
        elif name == "lm_head.weight":
            yield "output.weight", value
        elif name == "model.norm.weight":
            yield "output_norm.weight", value + 1 if family in GEMMAS else value
        else:
            layer, rest = name.removeprefix("model.layers.").split(".", 1)
            yield from layer_tensors(family, config, heads, kv_heads, f"blk.{layer}.", rest, value)


def layer_tensors(family, config, heads, kv_heads, prefix, rest, value):
    if rest.startswith("mlp.experts."):
        yield from expert_tensors(prefix, rest.removeprefix("mlp.experts."), value)
        return
    if rest == "self_attn.sinks":
        yield prefix + "attn_sinks.weight", value
        return
    stem, kind = rest.rsplit(".", 1)
    if family == "mistral" and stem == "self_attn.q_proj":
        value = interleave(value, heads)
    if family == "mistral" and stem == "self_attn.k_proj":
        value = interleave(value, kv_heads)
    if family in GEMMAS and stem.endswith("norm"):
        value = value + 1
    if stem == {"gemma2": "self_attn.q_proj", "gemma3_text": "self_attn.q_norm"}.get(family):
        value = value * np.float32((config["head_dim"] / config["query_pre_attn_scalar"]) ** 0.5)
    new = post_attention_name(family) if stem == "post_attention_layernorm" else NAMES[stem]
    yield f"{prefix}{new}.{kind}", value


def expert_tensors(prefix, rest, value):
    kind = "bias" if rest.endswith("_bias") else "weight"
    value = value if kind == "bias" else value.swapaxes(1, 2)  # [experts, out, in]
    if rest.startswith("gate_up_proj"):
        yield f"{prefix}ffn_gate_exps.{kind}", value[:, 0::2]
        yield f"{prefix}ffn_up_exps.{kind}", value[:, 1::2]
    else:
        yield f"{prefix}ffn_down_exps.{kind}", value


def write_keys(writer, family, config):
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config["rope_parameters"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if family == "gemma3_text":
        writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
        writer.add_float32("gemma3.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    else:
        writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    if family == "cohere2":
        writer.add_layer_norm_eps(config["layer_norm_eps"])
        writer.add_logit_scale(config["logit_scale"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if family in (*GEMMAS, "gpt_oss"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    else:
        writer.add_rope_dimension_count(head_dim)
    if family == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if family == "olmo3":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    if family == "gpt_oss":
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def write_vocabulary(writer, size):
    """A byte a token, as files without any vocabulary are no models; the fixtures are given token ids."""
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<0x{i:02X}>" for i in range(size)])
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([int(gguf.TokenType.BYTE)] * size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--f16", action="store_true", help="matrices as float16")
    parser.add_argument("--experts", choices=["mxfp4"], help="type of the experts' matrices")
    arguments = parser.parse_args()
    config = json.loads((arguments.folder / "config.json").read_text())
    family = config["model_type"]
    writer = gguf.GGUFWriter(str(arguments.out), ARCHITECTURES[family])
    writer.add_name("fixture")  # llama.cpp asks for more tokens of anything called phi-3
    write_keys(writer, family, config)
    write_vocabulary(writer, config["vocab_size"])
    for name, value in tensors_of(family, config, load_file(arguments.folder / "model.safetensors")):
        value = np.ascontiguousarray(value, dtype=np.float32)
        if arguments.experts and name.endswith("_exps.weight"):
            kind = gguf.GGMLQuantizationType.MXFP4
            writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            half = arguments.f16 and value.ndim > 1 and not name.endswith("bias")
            writer.add_tensor(name, value.astype(np.float16) if half else value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
