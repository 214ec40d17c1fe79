#!/usr/bin/env python3
"""Writes tests/data/rope: frequencies of every kind of RoPE scaling, and logits of fixtures under some of them.

cases.json: for each case a config.json's parameters, the inverse frequencies and the factor on cos and sin, as Hugging
Face transformers computes them. longrope*.safetensors: the weights of tests/data/phi3 with LongRoPE parameters: one
sequence within the original context (short factors) and one beyond it (long ones), in float64, eager, without a cache.
gemma3_linear and olmo3_yarn: those fixtures with their full layers scaled, as Gemma 3 4B and OLMo 3 7B are.

Needs: torch, transformers 5.23 or later, safetensors. Run from anywhere.
"""
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GptOssConfig, LlamaConfig, Olmo3Config, Olmo3ForCausalLM,
                          Phi3Config, Phi3ForCausalLM)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

DATA = Path(__file__).resolve().parent.parent / "tests/data"
SIZES = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
         "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 16}
YARN = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 4096,
        "short_factor": [1.0 + 0.01 * i for i in range(32)], "long_factor": [1.0 + 1.5 * i for i in range(32)]}

CASES = {
    "linear": (LlamaConfig, 131072, {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}, None),
    "llama3": (LlamaConfig, 131072, {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                                     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, None),
    "yarn_rounded": (LlamaConfig, 131072, {**YARN, "truncate": True}, None),
    "yarn_not_rounded": (GptOssConfig, 131072, {**YARN, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}, None),
    "yarn_defaults": (LlamaConfig, 131072, YARN, None),
    "yarn_betas_and_factor": (LlamaConfig, 65536, {**YARN, "rope_theta": 500000.0, "factor": 8.0, "beta_fast": 16.0,
                                                   "beta_slow": 2.0, "original_max_position_embeddings": 8192,
                                                   "attention_factor": 1.2079441541679836}, None),
    "yarn_mscale": (LlamaConfig, 131072, {**YARN, "mscale": 0.707, "mscale_all_dim": 1.0}, None),
    "longrope_short": (Phi3Config, 131072, LONG, 4096),
    "longrope_long": (Phi3Config, 131072, LONG, 4097),
    "longrope_partial": (Phi3Config, 131072, {**LONG, "partial_rotary_factor": 0.75, "short_factor": LONG["short_factor"][:24],
                                              "long_factor": LONG["long_factor"][:24]}, 4097),
    "longrope_factor": (Phi3Config, 131072, {**LONG, "attention_factor": 1.25}, 1),
}


def frequencies() -> list[dict]:
    out = []
    for name, (kind, context, parameters, length) in CASES.items():
        config = kind(**SIZES, max_position_embeddings=context, rope_parameters=dict(parameters),
                      **({"original_max_position_embeddings": 4096, "pad_token_id": 0} if kind is Phi3Config else {}))
        inverse, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu", seq_len=length)
        out.append({"name": name, "rope_parameters": parameters, "max_position_embeddings": context,
                    "long": length is not None and length > 4096, "rotary_dim": 2 * len(inverse),
                    "inverse_frequencies": [float(x) for x in inverse], "attention_factor": float(factor)})
    return out


def longrope(part: float, name: str) -> None:
    folder = DATA / "phi3"
    config = json.loads((folder / "config.json").read_text())
    count = int(16 * part) // 2
    config["original_max_position_embeddings"] = 32
    config["max_position_embeddings"] = 256
    config["rope_parameters"] = {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": part, "original_max_position_embeddings": 32,
        "short_factor": [1.0 + 0.05 * i for i in range(count)], "long_factor": [1.0 + 0.7 * i for i in range(count)]}
    model = Phi3ForCausalLM(Phi3Config(**config)).double()
    model.config._attn_implementation = "eager"
    model.load_state_dict({k: v.double() for k, v in load_file(folder / "model.safetensors").items()})
    model.eval()
    ids = load_file(folder / "case.safetensors")["input_ids"].long()
    out = {"input_ids": ids.int()}
    for which, length in (("short", 32), ("long", len(ids))):
        with torch.no_grad():
            out[which] = model(ids[None, :length], use_cache=False).logits[0].float().contiguous()
    save_file(out, DATA / f"rope/{name}.safetensors")
    (DATA / f"rope/{name}.json").write_text(json.dumps(config, indent=1) + "\n")
    with torch.no_grad():
        moved = (model(ids[None, :32], use_cache=False).logits[0] - out["long"][:32].double()).abs().max()
    print(f"{name}: long and short factors differ by {moved:.3g} within the first 32 positions")


def scaled(folder: str, config_class, model_class, scaling: dict, name: str) -> None:
    config = json.loads((DATA / folder / "config.json").read_text())
    plain = config["rope_parameters"]["full_attention"]
    config["rope_parameters"]["full_attention"] = {**scaling, "rope_theta": plain["rope_theta"]}
    model = model_class(config_class(**config)).double().eval()
    model.config._attn_implementation = "eager"
    state = {k: v.double() for k, v in load_file(DATA / folder / "model.safetensors").items()}
    model.load_state_dict(state, strict="lm_head.weight" in state)
    ids = load_file(DATA / folder / "case.safetensors")["input_ids"].long()
    with torch.no_grad():
        logits = model(ids[None], use_cache=False).logits[0].float().contiguous()
    save_file({"input_ids": ids.int(), "logits": logits}, DATA / f"rope/{name}.safetensors")
    (DATA / f"rope/{name}.json").write_text(json.dumps(config, indent=1) + "\n")
    moved = (logits - load_file(DATA / folder / "case.safetensors")["logits"]).abs().max()
    print(f"{name}: scaling moves the logits by up to {moved:.3g}")


if __name__ == "__main__":
    (DATA / "rope").mkdir(exist_ok=True)
    (DATA / "rope/cases.json").write_text(json.dumps(frequencies(), indent=1) + "\n")
    longrope(1.0, "longrope")
    longrope(0.75, "longrope_partial")
    scaled("gemma3", Gemma3TextConfig, Gemma3ForCausalLM, {"rope_type": "linear", "factor": 8.0}, "gemma3_linear")
    scaled("olmo3", Olmo3Config, Olmo3ForCausalLM, {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
        "attention_factor": 1.2079441541679836}, "olmo3_yarn")
