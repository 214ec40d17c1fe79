"""Exported bundles against ONNX Runtime: check_onnx.py SLIPRING_PROGRAM SOURCE_FOLDER

Exit status 77: skipped, for want of Python packages (numpy, safetensors, onnx, onnxruntime).
"""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from safetensors.numpy import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

PROGRAM, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
DATA = SOURCE / "tests" / "data"
DTYPES = {"F32": np.float32, "F16": np.float16}
TOLERANCE = 1e-4  # against float64 references: docs of the fixtures
WORK = Path(tempfile.mkdtemp(prefix="slipring-export-"))


def slipring(*arguments, check=True):
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    if check and result.returncode != 0:
        raise AssertionError(f"slipring {arguments}: {result.stderr}")
    return result


def export(model, *flags):
    flags = [str(f) for f in flags]
    folder = WORK / "-".join([str(model).replace("/", "_"), *(Path(f).name.strip("-") for f in flags)])
    if not folder.exists():
        slipring("export", "-m", DATA / model, "-o", folder, *flags)
    return folder


class Bundle:
    """The programs of a bundle, and one sequence's states carried outside of them."""

    def __init__(self, folder):
        self.folder = folder
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.programs = {p["name"]: p for p in self.manifest["programs"]}
        self.sessions = {}
        self.clear()

    def clear(self):
        self.offset = 0
        self.states = {}
        for state in self.programs["main"]["states"]:
            shape = [0 if dim == "offset" else dim for dim in state["dims"]]
            for name in state["inputs"]:
                self.states[name] = np.zeros(shape, DTYPES[state["dtype"]])

    def session(self, name):
        if name not in self.sessions:
            options = ort.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = 1
            self.sessions[name] = ort.InferenceSession(self.folder / self.programs[name]["onnx"], options)
        return self.sessions[name]

    def embed(self, ids):
        return self.session("embed").run(None, {"token_ids": np.array(ids, np.int64)})[0]

    def step(self, name, x):
        """x: token ids, or hidden states. Nothing changes if it fails."""
        program = self.programs[name]
        x = np.asarray(x)
        feed = dict(self.states)
        feed["inputs_embeds" if x.ndim == 2 else "token_ids"] = x.astype(np.float32 if x.ndim == 2 else np.int64)
        if program["offset"]["input"] == "past":
            feed["past"] = np.zeros((self.offset, 0), np.float32)
        session = self.session(name)
        outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))
        for state in program["states"]:
            for before, after in zip(state["inputs"], state["outputs"]):
                self.states[before] = outputs.pop(after)
        self.offset += len(x)
        self.outputs = outputs
        return outputs.get("logits")

    def feed(self, x, chunk, decode_from=None):
        """Everything in x, in steps of at most `chunk` that wrap no ring; one token a step from `decode_from` on."""
        rings = self.programs["score"]["constraints"]["no_wrap"]
        rows, done = [], 0
        decode_from = len(x) if decode_from is None else decode_from
        while done < len(x):
            if done >= decode_from:
                count, name = 1, "main"
            else:
                count = min([decode_from - done, chunk] + [slots - self.offset % slots for slots in rings])
                name = "score"
            rows.append(self.step(name, x[done : done + count]))
            done += count
        return np.concatenate(rows)


def native_logits(source, ids, *flags):
    """From slipring itself; source is ("-m", model) or ("--program", folder)."""
    out = WORK / "native.safetensors"
    slipring("logits", *source, "--kv", "f32", "--tokens", " ".join(map(str, ids)), "-o", out, *flags)
    return load_file(out)["logits"]


def some_ids(count, vocab, seed):
    return np.random.default_rng(seed).integers(0, vocab, count)


class ReferenceLogits(unittest.TestCase):
    def check(self, model, tolerance=TOLERANCE):
        case = load_file(DATA / model / "case.safetensors")
        bundle = Bundle(export(model))
        ids, expected = case["input_ids"], case["logits"]
        rings = bundle.programs["main"]["constraints"]["no_wrap"]
        self.assertGreater(len(ids), 3 * min(rings))
        for chunk, decode_from in ((64, None), (5, None), (7, 40), (1, 0)):
            bundle.clear()
            got = bundle.feed(ids, chunk, decode_from)
            self.assertLess(np.abs(got - expected).max(), tolerance, f"chunk {chunk}, decode from {decode_from}")

    def test_muse_glimmer(self):
        self.check("muse-glimmer")

    def test_gemma3(self):
        self.check("gemma3")

    def test_prefill_without_logits_leaves_the_same_states(self):
        ids = load_file(DATA / "muse-glimmer" / "case.safetensors")["input_ids"]
        one, other = Bundle(export("muse-glimmer")), Bundle(export("muse-glimmer"))
        for first, end in ((0, 16), (16, 23)):
            self.assertIsNone(one.step("prefill", ids[first:end]))
            self.assertIsNotNone(other.step("score", ids[first:end]))
        for name, value in one.states.items():
            np.testing.assert_array_equal(value, other.states[name])

    def test_half_precision_states(self):
        ids = load_file(DATA / "muse-glimmer" / "case.safetensors")["input_ids"]
        bundle = Bundle(export("muse-glimmer", "--kv", "f16"))
        got = bundle.feed(ids, 64, 50)
        self.assertEqual(bundle.states["ring.0.k"].dtype, np.float16)
        out = WORK / "f16.safetensors"
        slipring("logits", "-m", DATA / "muse-glimmer", "--kv", "f16", "--tokens", " ".join(map(str, ids)), "-o", out)
        # A key on the border between two halves may round either way, so this is no equality.
        self.assertLess(np.abs(got - load_file(out)["logits"]).max(), 1e-2)


class DynamicLengths(unittest.TestCase):
    """One graph for every query length and every past length, with tokens that no trace has seen."""

    def check(self, model, flags, window):
        vocab = Bundle(export(model)).manifest["model"]["vocab_size"]
        ids = some_ids(3 * window + 40, vocab, seed=7)
        expected = native_logits(("-m", DATA / model), ids)
        bundle = Bundle(export(model, *flags))
        embeddings = "--embeddings" in flags
        x = bundle.embed(ids) if embeddings else ids
        refused = 0
        for past in (0, window - 1, window, window + 1, 3 * window):
            for count in (1, 2, 7, 8, 33):
                bundle.clear()
                bundle.feed(x[:past], 64) if past else None
                legal = all(past % slots + count <= slots for slots in bundle.programs["score"]["constraints"]["no_wrap"])
                if not legal:  # the graph itself refuses: there is no slot past the ring's end
                    with self.assertRaises(Exception):
                        bundle.step("score", x[past : past + count])
                    refused += 1
                    continue
                got = bundle.step("score", x[past : past + count])
                self.assertLess(np.abs(got - expected[past : past + count]).max(), TOLERANCE, f"{past} + {count}")
        self.assertEqual(refused == 0, embeddings)

    def test_rings(self):
        self.check("muse-glimmer", (), 16)

    def test_gemma3(self):
        self.check("gemma3", (), 12)

    def test_window_as_mask(self):
        self.check("muse-glimmer", ("--embeddings",), 16)
        self.check("gemma3", ("--embeddings",), 12)

    def test_no_length_is_frozen(self):
        for folder in (export("muse-glimmer"), export("muse-glimmer", "--embeddings")):
            for program in Bundle(folder).manifest["programs"]:
                graph = onnx.load(folder / program["onnx"], load_external_data=False).graph
                for value in list(graph.input) + list(graph.output):
                    named = [d.dim_param for d in value.type.tensor_type.shape.dim if d.dim_param]
                    ring = value.name.startswith("ring.")
                    self.assertEqual(bool(named), not ring, value.name)


class Graphs(unittest.TestCase):
    def test_onnx_accepts_them(self):
        for flags in ((), ("--embeddings",), ("--kv", "f16")):
            folder = export("muse-glimmer", *flags)
            for program in Bundle(folder).manifest["programs"]:
                onnx.checker.check_model(str(folder / program["onnx"]), full_check=True)

    def test_manifest_names_what_the_graphs_have(self):
        folder = export("muse-glimmer")
        for program in Bundle(folder).manifest["programs"]:
            graph = onnx.load(folder / program["onnx"], load_external_data=False).graph
            inputs = [i["name"] for i in program["inputs"]] + [n for s in program["states"] for n in s["inputs"]]
            outputs = [o["name"] for o in program["outputs"]] + [n for s in program["states"] for n in s["outputs"]]
            self.assertEqual(sorted(inputs), sorted(v.name for v in graph.input))
            self.assertEqual(sorted(outputs), sorted(v.name for v in graph.output))

    def test_embeddings_graph_has_no_ring_op(self):
        def writes(folder, name):
            nodes = onnx.load(folder / f"{name}.onnx", load_external_data=False).graph.node
            return sum(node.op_type == "ScatterND" for node in nodes)

        for name in ("main", "prefill", "score", "embed"):
            self.assertEqual(writes(export("muse-glimmer", "--embeddings"), name), 0)
        for name in ("main", "prefill", "score"):
            self.assertEqual(writes(export("muse-glimmer"), name), 2 * 6)  # k and v of six sliding layers


class Embeddings(unittest.TestCase):
    def test_equals_reference_past_several_windows(self):
        for model in ("muse-glimmer", "gemma3"):
            case = load_file(DATA / model / "case.safetensors")
            bundle = Bundle(export(model, "--embeddings"))
            got = bundle.feed(bundle.embed(case["input_ids"]), 33, 60)
            self.assertLess(np.abs(got - case["logits"]).max(), TOLERANCE)

    def test_image_features_in_place_of_tokens(self):
        case = load_file(DATA / "muse-glimmer" / "vision_case.safetensors")
        config = json.loads((DATA / "muse-glimmer" / "config.json").read_text())
        ids = case["input_ids"]
        bundle = Bundle(export("muse-glimmer", "--embeddings"))
        x = bundle.embed(ids)
        x[ids == config["image_token_id"]] = case["image_features"]
        for chunk in (64, 9):
            bundle.clear()
            self.assertLess(np.abs(bundle.feed(x, chunk, 40) - case["logits"]).max(), TOLERANCE)


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
        scales = blocks[name.removesuffix(".blocks") + ".scales"]
        if q.shape[-1] == 16:
            values = np.stack([q & 15, q >> 4], axis=-1).reshape(*q.shape[:2], 32).astype(np.float32) - 8
        else:
            values = q.astype(np.float32) - 128
        values = (values * scales[..., None]).reshape(q.shape[0], -1).astype(np.float32)
        entry = header[name.removesuffix(".blocks")]
        assert entry["dtype"] == "F32" and entry["shape"] == list(values.shape)
        first, end = (8 + length + o for o in entry["data_offsets"])
        raw[first:end] = values.tobytes()
        changed += 1
    assert changed > 0
    path.write_bytes(raw)


class Drafter(unittest.TestCase):
    """Every layer slides here, so the offset travels as the shape of "past"."""

    def setUp(self):
        self.bundle = Bundle(export("muse-glimmer", "-d", DATA / "muse-glimmer-assistant"))
        self.case = load_file(DATA / "muse-glimmer-assistant" / "case.safetensors")

    def draft(self, context, block, chunk=16):
        rings = Rings(self.bundle)
        while rings.offset < len(context):
            count = min(len(context) - rings.offset, chunk, *(c - rings.offset % c for c in rings.capacities))
            rings.run("inject", inputs_embeds=context[rings.offset : rings.offset + count])
            rings.offset += count
        return rings.run("draft", token_ids=block.astype(np.int64))

    def test_reference_round_within_the_window(self):
        """The reference ran without a cache, where it leaves the window out: all of its rounds agree with attention to
        the whole context. So it speaks for windowed attention only where no key is farther away than the window."""
        facts, case = self.bundle.manifest["drafter"], self.case
        block = case["round0.block_ids"]
        self.assertEqual((len(block), block[1]), (facts["block_size"], facts["mask_token"]))
        context = case["taps"][: case["round0.context_length"][0]]
        self.assertLessEqual(len(context) + len(block) - 1, 16)
        for chunk in (16, 2):
            got = self.draft(context, block, chunk)
            self.assertLess(np.abs(got["hidden"] - case["round0.hidden"]).max(), TOLERANCE)
            np.testing.assert_array_equal(got["logits"].argmax(1)[1:], case["round0.draft_ids"][1:])

    def test_window(self):
        """The anchor at position n sees keys from n - 16 on, and with it the whole block hears of those."""
        for n in (19, 32, 89):
            context, block = self.case["taps"][:n], self.case["round3.block_ids"]
            before = self.draft(context, block)["hidden"]
            for position, changes in ((n - 17, False), (n - 16, True), (n - 1, True)):
                other = context.copy()
                other[position] += 1.0
                self.assertEqual(np.any(self.draft(other, block, 5)["hidden"] != before), changes, f"{n} {position}")

    def test_target_gives_the_taps(self):
        bundle, case = self.bundle, self.case
        taps = bundle.manifest["drafter"]["taps"]
        rows = []
        for first in range(0, 48, 16):
            bundle.step("score", case["input_ids"][first : first + 16])
            rows.append(np.concatenate([bundle.outputs[f"hidden.{layer}"] for layer in taps], axis=1))
        self.assertLess(np.abs(np.concatenate(rows) - case["taps"][:48]).max(), TOLERANCE)


class Rings:
    """The drafter's states."""

    def __init__(self, bundle):
        self.bundle, self.offset = bundle, 0
        states = bundle.programs["inject"]["states"]
        self.capacities = [state["capacity"] for state in states]
        self.states = {name: np.zeros(s["dims"], np.float32) for s in states for name in s["inputs"]}

    def run(self, name, **inputs):
        session = self.bundle.session(name)
        feed = dict(self.states, past=np.zeros((self.offset, 0), np.float32), **inputs)
        outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))
        for state in self.bundle.programs[name]["states"]:
            self.states.update({i: outputs.pop(o) for i, o in zip(state["inputs"], state["outputs"])})
        return outputs


class Compression(unittest.TestCase):
    def check_quantised(self, model, kind):
        quantised = export(model, "--quantize", kind)
        floats = WORK / f"floats-{model}-{kind}"
        shutil.copytree(export(model), floats)
        patch_weights(floats, quantised)
        case = load_file(DATA / model / "case.safetensors")
        expected = Bundle(floats).feed(case["input_ids"], 64)
        got = Bundle(quantised).feed(case["input_ids"], 64, 50)
        self.assertLess(np.abs(got - expected).max(), 1e-3)
        self.assertGreater(np.abs(got - case["logits"]).max(), 1e-3)  # else nothing was quantised
        sizes = [(f / "model.safetensors").stat().st_size for f in (quantised, floats)]
        self.assertLess(sizes[0], 0.6 * sizes[1])

    def test_four_bits(self):
        self.check_quantised("muse-glimmer", "q4")

    def test_eight_bits(self):
        self.check_quantised("muse-glimmer", "q8")

    def test_graph_mode_is_refused_with_a_ring(self):
        folder = WORK / "refused"
        result = slipring("export", "-m", DATA / "muse-glimmer", "-o", folder, "--quantize", "q4", "--mode", "graph",
                          check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("ring.0", result.stderr)
        self.assertIn("eager", result.stderr)
        self.assertFalse(folder.exists())

    def test_graph_mode_equals_eager_mode_without_a_ring(self):
        flags = ("--embeddings", "--quantize", "q4")
        eager, graph = Bundle(export("muse-glimmer", *flags)), Bundle(export("muse-glimmer", *flags, "--mode", "graph"))
        ids = some_ids(50, 320, seed=3)
        x = eager.embed(ids)
        for name in ("prefill", "score"):
            for bundle in (eager, graph):
                bundle.clear()
            for first, end in ((0, 33), (33, 50)):
                got = [bundle.step(name, x[first:end]) for bundle in (eager, graph)]
                if name == "score":
                    np.testing.assert_array_equal(*got)
            for state, value in eager.states.items():
                np.testing.assert_array_equal(value, graph.states[state])
        for step in (eager.step("main", x[:1]), graph.step("main", x[:1])):
            self.assertEqual(step.shape, (1, 320))


class OwnInterpreter(unittest.TestCase):
    """slipring runs what it exported, with the bits of the model itself."""

    def test_same_bits(self):
        for model in ("muse-glimmer", "gemma3", "gguf/muse-glimmer-f16.gguf"):
            ids = some_ids(60, 256, seed=5)
            expected = native_logits(("-m", DATA / model), ids)
            for flags in ((), ("--embeddings",)):
                for chunk in ("512", "3"):
                    got = native_logits(("--program", export(model, *flags)), ids, "--chunk", chunk)
                    np.testing.assert_array_equal(got, expected)

    def test_quantised_modes(self):
        flags = ("--embeddings", "--quantize", "q8")
        ids = some_ids(40, 320, seed=6)
        eager = native_logits(("--program", export("muse-glimmer", *flags)), ids)
        graph = native_logits(("--program", export("muse-glimmer", *flags, "--mode", "graph")), ids)
        np.testing.assert_array_equal(eager, graph)
        plain = native_logits(("-m", DATA / "muse-glimmer"), ids)
        self.assertGreater(np.abs(eager - plain).max(), 0)  # else nothing was quantised

    def test_text_from_a_bundle(self):
        text = ("-p", "In the beginning", "-n", "24", "--temp", "0", "-q")
        folder, drafter = WORK / "default", SOURCE / "models" / "glimmer-tiny" / "glimmer-tiny-dflash-q8_0.gguf"
        slipring("export", "-o", folder)
        expected = slipring("run", *text).stdout
        self.assertGreater(len(expected), 10)
        self.assertEqual(slipring("run", "--program", folder, *text).stdout, expected)
        result = slipring("run", "--program", folder, "-d", drafter, *text, check=False)
        self.assertIn("export the bundle with -d", result.stderr)
        slipring("export", "-o", folder, "-d", drafter)
        self.assertEqual(slipring("run", "--program", folder, "-d", drafter, *text).stdout, expected)

    def test_damaged_bundles_are_refused(self):
        good = export("muse-glimmer")

        def refused(change, word):
            bad = WORK / "damaged"
            shutil.rmtree(bad, ignore_errors=True)
            shutil.copytree(good, bad)
            change(bad)
            result = slipring("logits", "--program", bad, "--tokens", "1 2", "-o", WORK / "x.safetensors", check=False)
            self.assertIn(result.returncode, (1, 2), result.stderr)
            self.assertIn(word, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)

        def edit(name, old, new):
            def change(folder):
                text = (folder / name).read_text()
                assert old in text
                (folder / name).write_text(text.replace(old, new, 1))

            return change

        refused(lambda f: (f / "manifest.json").unlink(), "manifest.json")
        refused(lambda f: (f / "model.safetensors").unlink(), "model.safetensors")
        refused(edit("manifest.json", '"vocab_size": 320', '"vocab_size": -1'), "vocab_size")
        refused(edit("manifest.json", '"vocab_size": 320', '"vocab_size": 321'), "vocabulary")
        refused(edit("main.program", "mode main", "mode prefill"), "first queries miss keys")
        refused(edit("score.program", "begin=offset % 16", "begin=0"), "begin")
        refused(edit("score.program", "[320, 64]", "[320, 65]"), "weight")
        refused(edit("score.program", "capacity 16 window 16", "capacity 17 window 16"), "17 + query_len")
        refused(edit("score.program", "n_heads=4", "n_heads=3"), "heads")
        refused(edit("score.program", "window=16", "window=17"), "17 keys back")
        refused(edit("score.program", ", c1)", ", c99999999999)"), "line")
        refused(edit("score.program", ", c1)", ", c2)"), "line")


class Example(unittest.TestCase):
    def test_it_decodes_what_the_reference_decodes(self):
        case = load_file(DATA / "muse-glimmer" / "case.safetensors")
        command = [sys.executable, SOURCE / "examples" / "run_bundle.py", export("muse-glimmer"), len(case["greedy"])]
        result = subprocess.run([*map(str, command), *map(str, case["input_ids"])], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([int(x) for x in result.stdout.split()], case["greedy"].tolist())

    def test_the_manual_shows_it(self):
        code = (SOURCE / "examples" / "run_bundle.py").read_text()
        self.assertIn(code, (SOURCE / "docs" / "export.md").read_text())
        self.assertLessEqual(len(code.splitlines()), 50)


if __name__ == "__main__":
    try:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
