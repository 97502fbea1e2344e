"""Functions of one element as oneDNN computes them: on their own, and behind another computation.
What there is of each activation stands in its file in ``operators/activations/``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.vendor.implementation import functions
from golow.levels.vendor.onednn.constants import DST, ELTWISE, SRC
from golow.levels.vendor.onednn.library import number
from golow.levels.vendor.onednn.operators import activations
from golow.levels.vendor.onednn.primitive import PostOp, Primitive
from golow.lower.graph import Activation, Ref

if TYPE_CHECKING:
    from golow.levels.vendor.onednn.builder import Builder


def no_numbers() -> tuple[float, float]:
    """For an algorithm that takes none."""
    return 0.0, 0.0


class Eltwise(NamedTuple):
    """An activation in oneDNN.

    algorithm: one of ELTWISE. numbers: alpha and beta, from the activation's own numbers.
    from_result: the library also computes the gradient from the result.
    """

    algorithm: str
    numbers: Callable[..., tuple[float, float]] = no_numbers
    from_result: bool = False


@cache
def functions_of_elements() -> dict[str, Eltwise]:
    """Those of all activations, by name."""
    return functions(activations)


def post_op(activation: Activation) -> PostOp:
    """The activation with its numbers. Raises KeyError for one that oneDNN has no algorithm for."""
    found = functions_of_elements()[activation.name]
    return PostOp(found.algorithm, *found.numbers(*activation.numbers))


def post_ops(activation: Activation | None) -> list[PostOp]:
    """The same as what follows a computation; nothing for none."""
    return [] if activation is None else [post_op(activation)]


def apply(build: Builder, reference: Ref, setting: PostOp, operation: str) -> None:
    """A step that gives the current node's value: a function of each element, in the layout in
    which the argument comes. operation: what plans call it."""
    x = build.tensor(reference)
    primitive = Primitive(
        build.engine, "eltwise_forward", build.forward, ELTWISE[setting.kind], x.layout, x.layout,
        number(setting.alpha), number(setting.beta),
    )  # fmt: skip
    result = build.in_place_or_new(reference, x)
    build.call(primitive, {SRC: x}, {DST: result}, operation)
    build.define(0, result)
