"""Activations as C expressions. Each is defined in its file in ``activations/``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf
from types import ModuleType
from typing import Any, NamedTuple

from golow.levels.direct.formulas import activations
from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import modules_in

Clip = tuple[float, float]

NO_CLIP: Clip = (-inf, inf)
RELU: Clip = (0.0, inf)


class Formulas(NamedTuple):
    """An activation as expressions of floats. The functions take expressions, each a name or in
    parentheses, followed by the activation's numbers.

    value(x): the result; NaN stays NaN. from_argument(gradient, x) and from_result(gradient, y):
    the gradient of x, None if it cannot be computed from that value. limits(): the limits of an
    activation that only clips, so that engines and other kernels can absorb it.
    """

    value: Callable[..., str]
    from_argument: Callable[..., str] | None = None
    from_result: Callable[..., str] | None = None
    limits: Callable[..., Clip] | None = None


@cache
def formulas() -> dict[str, Formulas]:
    """Return the formulas of all activations, by name."""
    return functions(activations)


def functions(package: ModuleType) -> dict[str, Any]:
    """Collect ``ACTIVATIONS`` from the files in the package's folder, by activation name."""
    found: dict[str, Any] = {}
    for module in modules_in(package):
        found |= getattr(module, "ACTIVATIONS", {})
    return found


def value(activation: Activation, x: str) -> str:
    """Return activation(x). Raises KeyError for an activation without formulas."""
    return formulas()[activation.name].value(f"({x})", *activation.numbers)


def with_activation(expression: str, activation: Activation | None) -> str:
    """Wrap the formula in the activation."""
    return expression if activation is None else value(activation, expression)


def derivative(activation: Activation, gradient: str, of: str, from_result: bool) -> str:
    """Return the gradient of the argument, computed from the result or from the argument.

    Raises ValueError if there is no such formula.
    """
    found = formulas()[activation.name]
    formula = found.from_result if from_result else found.from_argument
    if formula is None:
        which = "result" if from_result else "argument"
        raise ValueError(f"the activation {activation.name} has no gradient from its {which}")
    return formula(gradient, of, *activation.numbers)


def derivative_at_argument(activation: Activation, gradient: str, x: str) -> str:
    """Return the gradient of the argument x, computed from x alone."""
    if formulas()[activation.name].from_argument is None:
        return derivative(activation, gradient, f"({value(activation, x)})", from_result=True)
    return derivative(activation, gradient, f"({x})", from_result=False)


def clip_of(activation: Activation | None) -> Clip | None:
    """Return the limits of a clip, `NO_CLIP` without an activation, None for any other one."""
    if activation is None:
        return NO_CLIP
    limits = formulas()[activation.name].limits
    return None if limits is None else limits(*activation.numbers)
