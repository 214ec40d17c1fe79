"""Small GGUF models whose matrices have any type, and the same models with the float values that those stand for."""
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize

# Byte offsets of a block's float16 numbers.
HALVES = {
    "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,),
    "MXFP4": (),
}  # fmt: skip
WIDTH, VOCABULARY, WINDOW = 256, 96, 12
MATRICES = {
    "token_embd": (VOCABULARY, WIDTH),
    "blk.0.attn_q": (WIDTH, WIDTH),
    "blk.0.attn_k": (128, WIDTH),
    "blk.0.attn_v": (128, WIDTH),
    "blk.0.attn_output": (WIDTH, WIDTH),
    "blk.0.ffn_gate": (512, WIDTH),
    "blk.0.ffn_up": (512, WIDTH),
    "blk.0.ffn_down": (WIDTH, 512),
}


def random_blocks(kind, rows, cols, random):
    """Every bit pattern of integers and sub-scales; scales so that the values are near 1 / sqrt(cols)."""
    columns, size = GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows, cols // columns, size), dtype=np.uint8)
    if kind.name == "MXFP4":
        raw[..., 0] = random.integers(118, 124, raw.shape[:2])
    scales = {at: random.uniform(-1, 1, raw.shape[:2]) / 64 for at in HALVES.get(kind.name, (0,))}

    def set_scales(factor):
        for at, values in scales.items():
            raw[..., at : at + 2] = (factor * values).astype(np.float16)[..., None].view(np.uint8)
        return raw.reshape(rows, -1)

    size = dequantize(set_scales(1.0), kind).std()  # as it comes from the type's integers
    return set_scales(1.0 / np.sqrt(cols) / size)


def write(path, kind, as_floats):
    """A decoder of one sliding layer, its embedding table tied to the head."""
    random = np.random.default_rng(int(kind))
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(512)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(256)
    writer.add_vocab_size(VOCABULARY)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_sliding_window(WINDOW)
    for name, (rows, cols) in MATRICES.items():
        blocks = random_blocks(kind, rows, cols, random)
        if as_floats:
            writer.add_tensor(f"{name}.weight", dequantize(blocks, kind).astype(np.float32))
        else:
            writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
