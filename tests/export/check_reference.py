"""Logits of exported bundles against reference logits: every family, every way through a prompt."""
import json
import unittest

import numpy as np
from safetensors.numpy import load_file

from bundles import DATA, FAMILIES, TOLERANCE, WORK, Bundle, Rings, export, slipring


def for_each_family(test):
    """A class decorator's method for each family, so that a failure has a name."""
    def decorate(cls):
        for family in FAMILIES:
            setattr(cls, f"{test}_{family.replace('-', '_')}", lambda self, family=family: self.check(family))
        return cls

    return decorate


@for_each_family("test_family")
class ReferenceLogits(unittest.TestCase):
    """From empty past three wraps: the prompt in chunks, then one token a step."""

    def check(self, model):
        case = load_file(DATA / model / "case.safetensors")
        bundle = Bundle(export(model))
        ids, expected = case["input_ids"], case["logits"]
        rings = bundle.programs["main"]["constraints"]["no_wrap"]
        self.assertGreater(len(ids), 3 * min(rings))
        worst = 0.0
        for chunk, decode_from in ((64, None), (5, None), (7, 40), (5, 9), (1, 0)):
            bundle.clear()
            error = np.abs(bundle.feed(ids, chunk, decode_from) - expected).max()
            self.assertLess(error, TOLERANCE, f"chunk {chunk}, decode from {decode_from}")
            worst = max(worst, error)
        print(f"{worst:.1e} from the reference ", end="", flush=True)

    def test_no_family_is_left_out(self):
        there = {p.parent.name for p in DATA.glob("*/case.safetensors") if "logits" in load_file(p)}
        self.assertEqual(there - {"glimmer-tiny"}, set(FAMILIES))

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


class Embeddings(unittest.TestCase):
    def test_equals_reference_past_several_windows(self):
        for model in ("muse-glimmer", "gemma3", "mistral", "gpt-oss"):
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
