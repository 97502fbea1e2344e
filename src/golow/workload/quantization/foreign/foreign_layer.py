"""A layer that others have quantised, in golow's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor

from golow.records.errors import GolowError
from golow.records.quantization import QuantizedLayer


class ForeignLayer(NamedTuple):
    """A layer's rule, and a function that converts its tensors, by their names in golow's layer.
    The rule comes first and cheaply: a module is built by it before there are weights."""

    rule: QuantizedLayer
    tensors: Callable[[], Mapping[str, Tensor]]


def refused(path: str, reason: str, hint: str = "") -> GolowError:
    """The error for a layer that no rule of golow's expresses exactly."""
    return GolowError(
        f"the layer {path} cannot be read as it is: {reason}",
        hint
        or "golow reads foreign layers exactly or not at all: quantise the original with golow.",
    )
