"""oneDNN's elementwise functions, as steps and fused into other primitives. Each activation is
defined in its file in ``operators/activations/``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.formulas.activation_formulas import functions
from golow.levels.direct.onednn.bindings.constants import DST, ELTWISE, SRC
from golow.levels.direct.onednn.bindings.library import number
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.steps import activations
from golow.lower.ir.graph import Activation, Ref

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


def no_numbers() -> tuple[float, float]:
    """For an algorithm without numbers."""
    return 0.0, 0.0


class Eltwise(NamedTuple):
    """An activation in oneDNN.

    algorithm: a key of ELTWISE. numbers: returns alpha and beta, from the activation's own numbers.
    from_result: whether the library can also compute the gradient from the result.
    """

    algorithm: str
    numbers: Callable[..., tuple[float, float]] = no_numbers
    from_result: bool = False


@cache
def functions_of_elements() -> dict[str, Eltwise]:
    """Return all activations, by name."""
    return functions(activations)


def post_op(activation: Activation) -> PostOp:
    """Return the activation with its numbers. Raises KeyError if oneDNN has no algorithm for it."""
    found = functions_of_elements()[activation.name]
    return PostOp(found.algorithm, *found.numbers(*activation.numbers))


def post_ops(activation: Activation | None) -> list[PostOp]:
    """Return the post-ops of a primitive: this activation, or an empty list without one."""
    return [] if activation is None else [post_op(activation)]


def apply(build: Builder, reference: Ref, setting: PostOp, operation: str) -> None:
    """Add a step that defines the current node's value: a function of each element, in the
    argument's layout. operation: its name in plans."""
    x = build.values.tensor(reference)
    primitive = Primitive(
        build.engine, "eltwise_forward", build.forward_kind, ELTWISE[setting.kind], x.layout,
        x.layout, number(setting.alpha), number(setting.beta),
    )  # fmt: skip
    result = build.values.in_place_or_new(reference, x)
    build.steps.call(primitive, {SRC: x}, {DST: result}, operation)
    build.values.define(0, result)
