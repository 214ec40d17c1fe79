"""Greedy decoding of an exported bundle with ONNX Runtime: run_bundle.py BUNDLE STEPS ID [ID ...]"""
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

folder, steps, prompt = Path(sys.argv[1]), int(sys.argv[2]), [int(x) for x in sys.argv[3:]]
programs = {p["name"]: p for p in json.loads((folder / "manifest.json").read_text())["programs"]}
sessions = {name: ort.InferenceSession(folder / programs[name]["onnx"]) for name in ("prefill", "main")}
rings = programs["prefill"]["constraints"]["no_wrap"]
states, offset = {}, 0
for state in programs["main"]["states"]:  # a ring has its slots from the start, a full cache grows
    shape = [0 if dim == "offset" else dim for dim in state["dims"]]
    states.update({i: np.zeros(shape, {"F32": np.float32, "F16": np.float16}[state["dtype"]]) for i in state["inputs"]})


def step(name, ids):
    """Runs one program; replaces the states that it wrote; returns its other outputs."""
    feed = dict(states, token_ids=np.array(ids, np.int64))
    if programs[name]["offset"]["input"] == "past":  # every layer slides: a shape alone carries the offset
        feed["past"] = np.zeros((offset, 0), np.float32)
    outputs = dict(zip([o.name for o in sessions[name].get_outputs()], sessions[name].run(None, feed)))
    for state in programs[name]["states"]:
        states.update({i: outputs.pop(o) for i, o in zip(state["inputs"], state["outputs"])})
    return outputs


while offset < len(prompt) - 1:  # all but the last token, in steps that wrap no ring
    count = min([len(prompt) - 1 - offset, 512] + [slots - offset % slots for slots in rings])
    step("prefill", prompt[offset : offset + count])
    offset += count
token = prompt[-1]
for offset in range(offset, offset + steps):
    token = int(step("main", [token])["logits"][-1].argmax())
    print(token)
