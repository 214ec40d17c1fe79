"""Exported bundles against ONNX Runtime: check_onnx.py SLIPRING_PROGRAM SOURCE_FOLDER [TEST...]

A TEST is a class of check_*.py, or Class.test. What cannot run here is said at the end. Exit status 77: nothing can run,
for want of Python packages (requirements.txt).
"""
import shutil
import sys
import unittest

try:
    import numpy  # noqa: F401
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import safetensors  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import bundles
from check_compression import Compression, KeptTypes  # noqa: F401
from check_graphs import DynamicLengths, Graphs, Masks  # noqa: F401
from check_program import Example, OwnInterpreter  # noqa: F401
from check_published import Published  # noqa: F401
from check_reference import Drafter, Embeddings, ReferenceLogits  # noqa: F401

if __name__ == "__main__":
    try:
        run = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2, exit=False)
    finally:
        shutil.rmtree(bundles.WORK, ignore_errors=True)
    for test, why in run.result.skipped:
        print(f"not run: {test.id().removeprefix('__main__.')}: {why}", file=sys.stderr)
    sys.exit(not run.result.wasSuccessful())
