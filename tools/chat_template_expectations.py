#!/usr/bin/env python3
"""Writes tests/data/chat_templates/expected.json: what Python's jinja2 makes of each template and conversation there.

Needs jinja2 3.1. Usage: tools/chat_template_expectations.py [FOLDER]; another folder of .jinja files, such as published
templates, gets its own expected.json, which slipring_text_tests reads where $SLIPRING_CHAT_TEMPLATES names that folder.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1753000000  # the clock of strftime_now, in UTC


class Generation(jinja2.ext.Extension):
    """The {% generation %} blocks of Hugging Face: their body, as it stands."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def refuse(message):
    raise jinja2.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
    return env


def with_reasoning_names(message):
    """As transformers does: templates read a message's reasoning under one of several names."""
    names = ("reasoning_content", "thinking", "reasoning")
    text = next((message[name] for name in names if message.get(name) is not None), None)
    return message if text is None else {"thinking": text, **message, "reasoning_content": text}


def render(source, conversation):
    messages = [with_reasoning_names(message) for message in conversation["messages"]]
    variables = {"messages": messages, "tools": conversation.get("tools"), "documents": None}
    variables |= {"add_generation_prompt": conversation.get("add_generation_prompt", True)}
    variables |= {"bos_token": "<s>", "eos_token": "</s>"} | conversation.get("variables", {})
    try:
        return {"text": environment().from_string(source).render(variables)}
    except Exception as error:  # any Python error in a template counts as its refusal
        return {"refusal": str(error)}


def main():
    ours = pathlib.Path(__file__).parent.parent / "tests/data/chat_templates"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ours
    conversations = json.loads((ours / "conversations.json").read_text())
    expected = []
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_bytes().decode()
        for name, conversation in conversations.items():
            expected.append({"template": path.name, "conversation": name} | render(source, conversation))
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(expected)} cases, {sum('text' in case for case in expected)} of them text")


if __name__ == "__main__":
    main()
