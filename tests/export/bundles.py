"""What the checks of exported bundles share: writing one, and running its programs in ONNX Runtime."""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort
from safetensors.numpy import load_file

PROGRAM, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
DATA = SOURCE / "tests" / "data"
DTYPES = {"F32": np.float32, "F16": np.float16}
TOLERANCE = 1e-4  # against float64 references: docs of the fixtures
FAMILIES = ("muse-glimmer", "gemma2", "gemma3", "mistral", "phi3", "olmo3", "cohere2", "gpt-oss")
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
