"""Options in messages as Python spells them: ``batch=8`` for ``--batch 8``.

Messages are written in the words of the command line, which prints them as they are; an exception
prints them through `in_python`.
"""

from __future__ import annotations

import re

# Arguments of the Python functions that are not named as the option is.
NAMES = {"input": "input_shape", "init": "initialisation", "worker": "workers"}
FLAGS = {
    "allow-differs": "allow_differs=True",
    "by-layer": "by_layer=True",
    "cold": "cold=True",
    "download": "download=True",
    "flip": "flip=True",
    "life": "life=True",
    "nesterov": "nesterov=True",
    "no-measure": "measure=False",
    "no-skip": "skip=False",
    "pretrained": "pretrained=True",
    "quick": "quick=True",
    "random-weights": "pretrained=False",
    "refine": "refine=True",
    "trust": "trust=True",
}
LISTS = {"levels"}
# Folders that a method of the result takes as its argument.
PLACE = re.compile(r" with --(?:out|save|tensorboard)\b")
# A line to type in a shell: it stays as it is, to the end of the line.
COMMAND = re.compile(r"`[^`\n]*`|\b(?:golow|pip|ray|python) -{0,2}\w[^\n]*")
SHAPE = r"\d+(?:x\d+)+"
NUMBER = r"-?(?:\d[\d.,]*\d|\d)(?:e[-+]?\d+)?%?|-?inf\b|nan\b"
WORD = (
    "cpu|cuda|default|ieee|tf32|bf16|fp16|infer|train|prefill|decode|sgd|kaiming|text|digits"
    "|first|largest|eager|vendor|direct|libtorch|onednn|cudnn|cross_entropy|mse_loss"
)
OPTION = re.compile(
    rf"(?<![\w-])--(?P<name>[a-z][a-z-]*)(?: (?P<value>{SHAPE}|{NUMBER}|(?:{WORD})(?![\w-])))?"
)


def in_python(message: str) -> str:
    """The message with its options as arguments of Python's functions; commands stay commands."""
    message = PLACE.sub("", message)
    parts, end = [], 0
    for command in COMMAND.finditer(message):
        parts += [OPTION.sub(_argument, message[end : command.start()]), command[0]]
        end = command.end()
    return "".join([*parts, OPTION.sub(_argument, message[end:])])


def _argument(option: re.Match[str]) -> str:
    name, value = option["name"], option["value"]
    if name in FLAGS:
        return FLAGS[name] + (f" {value}" if value else "")
    argument = NAMES.get(name, name.replace("-", "_"))
    return f"{argument}={_value(name, value)}"


def _value(name: str, value: str | None) -> str:
    if value is None:
        return ""
    if re.fullmatch(SHAPE, value):
        return f"({value.replace('x', ', ')})"
    if re.fullmatch(NUMBER, value):
        return value
    return f'["{value}"]' if name in LISTS else f'"{value}"'
