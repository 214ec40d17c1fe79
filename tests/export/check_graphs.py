"""What holds of the exported graphs for every length, read from the files and run."""
import unittest

import numpy as np
import onnx

from bundles import DATA, FAMILIES, TOLERANCE, WORK, Bundle, export, native_logits, ort, some_ids


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

    def test_every_layer_slides(self):
        self.check("mistral", (), 12)

    def test_experts(self):
        self.check("gpt-oss", (), 12)

    def test_window_as_mask(self):
        self.check("muse-glimmer", ("--embeddings",), 16)
        self.check("gemma3", ("--embeddings",), 12)

    def test_no_length_is_frozen(self):
        for folder in (export("muse-glimmer"), export("muse-glimmer", "--embeddings")):
            for program in Bundle(folder).manifest["programs"]:
                graph = onnx.load(folder / program["onnx"], load_external_data=False).graph
                one_token = program["constraints"]["single_token"]
                for value in list(graph.input) + list(graph.output):
                    dims = value.type.tensor_type.shape.dim
                    named = [d.dim_param for d in dims if d.dim_param]
                    if value.name.startswith("ring."):
                        self.assertEqual(named, [], value.name)
                    elif one_token and not value.name.startswith("full."):
                        self.assertEqual(dims[0].dim_value, 1, value.name)
                    else:
                        self.assertEqual(len(named), 1, value.name)

    def test_write_first_takes_one_token(self):
        """The old bug needs a step of several tokens that writes before it reads: no runtime takes one."""
        for model in FAMILIES:
            bundle = Bundle(export(model))
            bundle.feed([5, 6, 7], 3)
            before = dict(bundle.states)
            with self.assertRaisesRegex(Exception, "invalid dimensions for input: token_ids"):
                bundle.step("main", [8, 9])
            for name, value in before.items():
                np.testing.assert_array_equal(value, bundle.states[name])
            bundle.step("main", [8])
        bundle = Bundle(export("muse-glimmer", "--embeddings"))  # no ring: nobody is held back
        bundle.step("main", bundle.embed([8, 9]))


def masks(folder, name):
    """A session whose further outputs are the masks of the layers, and their names by layer."""
    model = onnx.load(folder / f"{name}.onnx")
    makers = {output: node for node in model.graph.node for output in node.output}
    inputs = {value.name for value in model.graph.input}
    found = {}
    for where in (node for node in model.graph.node if node.op_type == "Where"):
        # Scores are q times k: the keys' first sources lead to the state of the layer.
        source = makers[where.input[1]]
        while source.op_type != "MatMul":
            source = makers[source.input[0]]
        source = source.input[1]
        while source not in inputs:
            source = makers[source].input[0]
        found[int(source.split(".")[1])] = where.input[0]
    for mask in sorted(set(found.values())):
        model.graph.output.append(onnx.helper.make_tensor_value_info(mask, onnx.TensorProto.BOOL, None))
    path = folder / f"{name}-masks.onnx"
    onnx.save(model, path)
    session = ort.InferenceSession(path)
    path.unlink()
    return session, found


class Masks(unittest.TestCase):
    """The window is there on the layers that slide and on no other: read off the masks that the graph itself makes."""

    def check(self, model, flags, name, past, count):
        bundle = Bundle(export(model, *flags))
        layers = bundle.manifest["model"]["layers"]
        ids = some_ids(past + count, bundle.manifest["model"]["vocab_size"], seed=8)
        x = bundle.embed(ids) if flags else ids
        if past > 0:
            bundle.feed(x[:past], 5)
        bundle.sessions[name], found = masks(bundle.folder, name)
        bundle.step(name, x[past:])
        self.assertEqual(sorted(found), list(range(len(layers))))
        for index, layer in enumerate(layers):
            mask = bundle.outputs[found[index]]
            query = past + np.arange(count)[:, None]
            seen = np.minimum(query + 1, layer["window"]) if layer["kind"] == "sliding" else query + 1
            np.testing.assert_array_equal(mask.sum(axis=1, keepdims=True), seen, f"{model} layer {index}")
            if layer["kind"] == "full" or flags:  # a full cache: the columns are the positions
                key = np.arange(past + count)
                np.testing.assert_array_equal(mask, (key <= query) & (key > query - seen))

    def test_of_every_family(self):
        for model in FAMILIES:
            kinds = {layer["kind"] for layer in Bundle(export(model)).manifest["model"]["layers"]}
            self.assertIn("sliding", kinds)
            for past, count in ((0, 9), (7, 4), (61, 3), (48, 9)):
                self.check(model, (), "score", past, count)
                self.check(model, ("--embeddings",), "score", past, count)
            for past in (0, 11, 12, 50):
                self.check(model, (), "main", past, 1)


class Graphs(unittest.TestCase):
    def test_onnx_accepts_them(self):
        for model in FAMILIES:
            folder = export(model)
            for program in Bundle(folder).manifest["programs"]:
                onnx.checker.check_model(str(folder / program["onnx"]), full_check=True)
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
