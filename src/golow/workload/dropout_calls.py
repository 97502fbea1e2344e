"""Dropout that a model calls as a function: found, and switched off as that of a layer is.

A model that calls ``functional.dropout`` has no attribute with the probability. A function stands
in for PyTorch's, under the same name, and asks a switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch.nn import functional

from golow.workload.patched_functions import StandIns


class _Signature(NamedTuple):
    """Where a function has its probability and its switch, and what they are if not given."""

    chance: tuple[int, str, float]
    training: tuple[int, str, bool] | None


_DROPOUT = _Signature((1, "p", 0.5), (2, "training", True))
_ALPHA_DROPOUT = _Signature((1, "p", 0.5), (2, "training", False))
_SIGNATURES = {
    "dropout": _DROPOUT,
    "dropout1d": _DROPOUT,
    "dropout2d": _DROPOUT,
    "dropout3d": _DROPOUT,
    "alpha_dropout": _ALPHA_DROPOUT,
    "feature_alpha_dropout": _ALPHA_DROPOUT,
    "scaled_dot_product_attention": _Signature((4, "dropout_p", 0.0), None),
}


class _Switch:
    """on: dropout drops. found: names of the calls that would have dropped something, if wanted."""

    def __init__(self) -> None:
        self.on = True
        self.found: list[str] | None = None


_SWITCH = _Switch()


def is_dropout_call(random_layer: str) -> bool:
    """True if this entry of `Workload.random_layers` is a call, not the path of a layer."""
    return random_layer.startswith("functional.")


@contextmanager
def dropout_calls_off() -> Iterator[None]:
    """Switch off those calls within the block, where the stand-ins are installed."""
    before, _SWITCH.on = _SWITCH.on, False
    try:
        yield
    finally:
        _SWITCH.on = before


@contextmanager
def dropout_calls_found() -> Iterator[list[str]]:
    """The calls within the block that are off and would drop something, as they come."""
    before, _SWITCH.found = _SWITCH.found, []
    try:
        yield _SWITCH.found
    finally:
        _SWITCH.found = before


def _stand_in(name: str, original: Callable[..., Any], signature: _Signature) -> Any:
    off = (*signature.chance[:2], 0.0) if signature.training is None else signature.training
    position, keyword = off[:2]

    def called(*given: Any, **named: Any) -> Any:
        if _SWITCH.on:
            return original(*given, **named)
        if _SWITCH.found is not None and _drops(given, named, signature):
            _SWITCH.found.append(f"functional.{name}")
        if len(given) > position:
            return original(*given[:position], type(off[2])(0), *given[position + 1 :], **named)
        return original(*given, **{**named, keyword: type(off[2])(0)})

    return called


def _drops(given: tuple[Any, ...], named: dict[str, Any], signature: _Signature) -> bool:
    def argument(place: tuple[int, str, Any]) -> Any:
        position, keyword, otherwise = place
        return given[position] if len(given) > position else named.get(keyword, otherwise)

    switch = signature.training
    return argument(signature.chance) > 0 and (switch is None or bool(argument(switch)))


DROPOUT_CALLS: StandIns = {
    (functional, name): _stand_in(name, getattr(functional, name), signature)
    for name, signature in _SIGNATURES.items()
}
"""The stand-ins."""
