"""A published model, where $SLIPRING_MODELS has it: its K-quantised blocks as ONNX against float32 arithmetic on the
dequantised weights, past the window of 512."""
import json
import os
import unittest
from pathlib import Path

import numpy as np

from bundles import DATA, Bundle, export

GEMMA = Path(os.environ.get("SLIPRING_MODELS", ".")) / "gemma-3-270m-q4_k_m.gguf"


def negative_log_likelihood(rows, ids):
    rows = rows.astype(np.float64)
    most = rows.max(axis=1, keepdims=True)
    total = np.log(np.exp(rows - most).sum(axis=1)) + most[:, 0]
    return total - rows[np.arange(len(ids)), ids]


class Published(unittest.TestCase):
    def test_gemma3(self):
        if "SLIPRING_MODELS" not in os.environ or not GEMMA.exists():
            self.skipTest(f"{GEMMA.name} is not under $SLIPRING_MODELS")
        reference = json.loads((DATA / "real" / "gemma3-270m.json").read_text())
        ids = np.array(reference["ids"])
        bundle = Bundle(export(GEMMA))
        nll, rows, decode_from = [], {}, len(ids) - 8
        while bundle.offset < len(ids):  # in chunks, then one token a step; a row of logits is a megabyte
            first = bundle.offset
            name, count = ("main", 1) if first >= decode_from else ("score", min(64, decode_from - first, 512 - first % 512))
            logits = bundle.step(name, ids[first : first + count])
            following = ids[first + 1 : first + 1 + count]
            nll.extend(negative_log_likelihood(logits[: len(following)], following))
            rows.update({p: logits[p - first] for p in reference["positions"] if first <= p < first + count})
        worst = np.abs(np.array(nll) - reference["nll"]).max()
        for position, top_ids, top_logits in zip(*(reference[k] for k in ("positions", "top_ids", "top_logits"))):
            worst = max(worst, np.abs(rows[position][top_ids] - top_logits).max())
        print(f"{worst:.1e} from the reference ", end="", flush=True)
        self.assertLess(worst, 1e-2)
