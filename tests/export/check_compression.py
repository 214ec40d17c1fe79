"""Weights in blocks: the same graph with the values that the blocks stand for."""
import json
import shutil
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file

from bundles import DATA, FAMILIES, TOLERANCE, WORK, Bundle, export, native_logits, slipring, some_ids

try:
    import gguf_models
except ImportError:  # the gguf package
    gguf_models = None


def patch_weights(folder, quantised):
    """Overwrites the float weights of a bundle with the values that a quantised bundle's blocks stand for."""
    blocks = load_file(quantised / "model.safetensors")
    path = folder / "model.safetensors"
    raw = bytearray(path.read_bytes())
    length = int.from_bytes(raw[:8], "little")
    header, changed = json.loads(raw[8 : 8 + length]), 0
    for name, q in blocks.items():
        if not name.endswith(".blocks"):
            continue
        d = blocks[name.removesuffix(".blocks") + ".d"].astype(np.float32)
        if q.shape[-1] == 16:
            values = np.stack([q & 15, q >> 4], axis=-1).reshape(*q.shape[:2], 32).astype(np.float32) - 8
        else:
            values = q.astype(np.float32) - 128
        values = (values * d[..., None]).reshape(q.shape[0], -1).astype(np.float32)
        entry = header[name.removesuffix(".blocks")]
        assert entry["dtype"] == "F32" and entry["shape"] == list(values.shape)
        first, end = (8 + length + o for o in entry["data_offsets"])
        raw[first:end] = values.tobytes()
        changed += 1
    assert changed > 0
    path.write_bytes(raw)


def full_attention_model():
    """The mistral fixture without its window: another model, in which every layer sees everything."""
    folder = WORK / "full-attention"
    if not folder.exists():
        shutil.copytree(DATA / "mistral", folder)
        config = json.loads((folder / "config.json").read_text())
        config["sliding_window"] = None
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def with_a_head(model):
    """The fixture, or a copy whose head is a weight of its own: quantising a head leaves the embedding table alone."""
    config = json.loads((DATA / model / "config.json").read_text())
    if not config.get("tie_word_embeddings", False):
        return model
    folder = WORK / f"{model}-with-a-head"
    if not folder.exists():
        shutil.copytree(DATA / model, folder)
        (folder / "config.json").write_text(json.dumps(dict(config, tie_word_embeddings=False)))
        weights = load_file(folder / "model.safetensors")
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
        save_file(weights, folder / "model.safetensors")
    return folder


class Compression(unittest.TestCase):
    def check_quantised(self, model, kind):
        source = with_a_head(model)
        quantised = export(source, "--quantize", kind)
        floats = WORK / f"floats-{model}-{kind}"
        shutil.copytree(export(source), floats)
        patch_weights(floats, quantised)
        case = load_file(DATA / model / "case.safetensors")
        expected = Bundle(floats).feed(case["input_ids"], 64)
        got = Bundle(quantised).feed(case["input_ids"], 64, 50)
        self.assertLess(np.abs(got - expected).max(), 1e-3)
        self.assertGreater(np.abs(got - case["logits"]).max(), 1e-3)  # else nothing was quantised
        sizes = [(f / "model.safetensors").stat().st_size for f in (quantised, floats)]
        self.assertLess(sizes[0], 0.6 * sizes[1])

    def test_four_bits(self):
        for model in FAMILIES:
            with self.subTest(model):
                self.check_quantised(model, "q4")

    def test_eight_bits(self):
        for model in FAMILIES:
            with self.subTest(model):
                self.check_quantised(model, "q8")

    def test_graph_mode_is_refused_with_a_ring(self):
        folder = WORK / "refused"
        result = slipring("export", "-m", DATA / "muse-glimmer", "-o", folder, "--quantize", "q4", "--mode", "graph",
                          check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("ring.0", result.stderr)
        self.assertIn("eager", result.stderr)
        self.assertFalse(folder.exists())

    def check_graph_mode(self, model, *flags):
        """Both modes, number for number; and the quantised weights are not the weights."""
        eager, graph = (Bundle(export(model, *flags, "--mode", mode)) for mode in ("eager", "graph"))
        self.assertEqual(eager.manifest["weights"]["mode"], "eager")
        self.assertEqual(graph.manifest["weights"]["mode"], "graph")
        ids = some_ids(50, eager.manifest["model"]["vocab_size"], seed=3)
        x = eager.embed(ids) if "--embeddings" in flags else ids
        for name in ("prefill", "score"):
            for bundle in (eager, graph):
                bundle.clear()
            for first, end in ((0, 33), (33, 49)):
                got = [bundle.step(name, x[first:end]) for bundle in (eager, graph)]
                if name == "score":
                    np.testing.assert_array_equal(*got)
            for state, value in eager.states.items():
                np.testing.assert_array_equal(value, graph.states[state])
            last = [bundle.step("main", x[49:]) for bundle in (eager, graph)]
            np.testing.assert_array_equal(*last)
        plain = native_logits(("-m", DATA / model), ids)
        self.assertGreater(np.abs(last[0] - plain[49:]).max(), 1e-3)
        for chunk in ("512", "7"):
            own = [native_logits(("--program", b.folder), ids, "--chunk", chunk) for b in (eager, graph)]
            np.testing.assert_array_equal(*own)

    def test_graph_mode_equals_eager_mode_on_the_embeddings_path(self):
        self.check_graph_mode("muse-glimmer", "--embeddings", "--quantize", "q4")

    def test_graph_mode_equals_eager_mode_on_a_full_attention_model(self):
        model = full_attention_model()
        for kind in ("q4", "q8"):
            self.check_graph_mode(model, "--quantize", kind)
        for program in Bundle(export(model)).manifest["programs"]:
            self.assertFalse(program["constraints"]["single_token"])  # the guard holds back nobody here
            self.assertEqual(program["constraints"]["no_wrap"], [])


class KeptTypes(unittest.TestCase):
    """A GGUF file's own types, exported as they are: the weights lose nothing, and take little more room."""

    def check(self, kind):
        floats, quantised = WORK / f"{kind.name}-floats.gguf", WORK / f"{kind.name}.gguf"
        gguf_models.write(floats, kind, as_floats=True)
        gguf_models.write(quantised, kind, as_floats=False)
        ids = some_ids(5 * gguf_models.WINDOW, gguf_models.VOCABULARY, seed=9)
        expected = native_logits(("-m", floats), ids)  # the values as the gguf package reads them, in float32
        folder = export(quantised)
        got = Bundle(folder).feed(ids, 7, 40)
        self.assertLess(np.abs(got - expected).max(), TOLERANCE * max(1.0, np.abs(expected).max()))
        self.assertGreater(np.abs(got).max(), 0.01)
        own = native_logits(("--program", folder), ids)
        if kind.name in ("IQ3_S", "IQ3_XXS", "IQ2_S"):  # these come back as floats
            self.assertLess(np.abs(own - expected).max(), TOLERANCE)
        else:
            np.testing.assert_array_equal(own, native_logits(("-m", quantised), ids))
        weights = (folder / "model.safetensors").stat().st_size
        self.assertLess(weights, 3.4 * quantised.stat().st_size)  # 2.5 bits take 8
        self.assertLess(weights, 0.31 * floats.stat().st_size)

    def test_every_type(self):
        if gguf_models is None:
            self.skipTest("the Python package gguf is not there")
        names = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 IQ3_S IQ3_XXS IQ2_S"
        for name in names.split():
            with self.subTest(name):
                self.check(gguf_models.GGMLQuantizationType[name])
