"""Description of the network to write: its plans, inputs, outputs and weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from golow.levels.direct.bundle_arrays import Read

# Types of elements as safetensors files have them.
FORMAT = {
    "float32": "F32", "bfloat16": "BF16", "float16": "F16", "int64": "I64", "int32": "I32",
    "uint8": "U8", "int8": "I8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip
Plan = TypeVar("Plan")


class End(NamedTuple):
    """An input or output, or a weight. dtype: of FORMAT. shape: a negative side is this many times
    the batch. also: other names of the same weight."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    also: tuple[str, ...] = ()


class Sized(NamedTuple, Generic[Plan]):
    """The plan of a batch, as a level builds it, and what reads its weights and constants."""

    plan: Plan
    read: Read


class Network(NamedTuple, Generic[Plan]):
    """title: the network's name. plans: by batch, the largest last. changed: the places of inputs
    that the network changes; what they become are further outputs of each plan. threads: of every
    call on a CPU. pads: whether a batch between sizes runs in the larger one; otherwise there is
    one size, and shapes are as they are. weights: the state dict; tied: the other names of weights
    that have several. example, expected: inputs, and what the plan makes of them, by the names of
    the ends."""

    title: str
    plans: Mapping[int, Sized[Plan]]
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    changed: tuple[int, ...]
    threads: int
    pads: bool
    weights: Mapping[str, np.ndarray]
    tied: Mapping[str, tuple[str, ...]]
    example: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]

    @property
    def name(self) -> str:
        """The title as an identifier of C."""
        return identifier(self.title) or "network"

    @property
    def shown(self) -> str:
        """The title for comments."""
        return shown(self.title)


def shown(title: str) -> str:
    """A title for comments: no sign ends one."""
    return re.sub(r"[^\w .:+-]", "_", title)


def identifier(text: str) -> str:
    """The text as an identifier of C, in lower case; empty if nothing of it can be in one."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    return f"n{name}" if name[:1].isdigit() else name
