"""slipring's own interpreter on exported bundles, and the example of the manual."""
import shutil
import subprocess
import sys
import unittest

import numpy as np
from safetensors.numpy import load_file

from bundles import DATA, FAMILIES, SOURCE, WORK, Bundle, export, native_logits, slipring, some_ids


class OwnInterpreter(unittest.TestCase):
    """slipring runs what it exported, with the bits of the model itself."""

    def test_same_bits(self):
        for model in (*FAMILIES, "gguf/muse-glimmer-f16.gguf", "gguf/gpt-oss-f16.gguf"):
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
        for model in FAMILIES:
            case = load_file(DATA / model / "case.safetensors")
            command = [sys.executable, SOURCE / "examples" / "run_bundle.py", export(model), len(case["greedy"])]
            result = subprocess.run([*map(str, command), *map(str, case["input_ids"])], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual([int(x) for x in result.stdout.split()], case["greedy"].tolist(), model)

    def test_the_manual_shows_it(self):
        code = (SOURCE / "examples" / "run_bundle.py").read_text()
        self.assertIn(code, (SOURCE / "docs" / "export.md").read_text())
        self.assertLessEqual(len(code.splitlines()), 40)
