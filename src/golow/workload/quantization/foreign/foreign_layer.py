"""Layers quantised by another tool, in golow's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor

from golow.records.errors import GolowError
from golow.records.quantization import QuantizedLayer


class ForeignLayer(NamedTuple):
    """A layer's rule, and a function that converts its tensors, by their names in golow's layer.
    The rule is separate and cheap, because a module is built from it before there are weights."""

    rule: QuantizedLayer
    tensors: Callable[[], Mapping[str, Tensor]]


def refused(path: str, reason: str, hint: str = "") -> GolowError:
    """Return the error for a layer that none of golow's rules expresses exactly."""
    return GolowError(
        f"the layer {path} cannot be read as it is: {reason}",
        hint
        or "golow reads only layers that it represents exactly: quantise the original with golow.",
    )
