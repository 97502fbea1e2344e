"""The optimizers' steps: each reads the gradient and what it keeps once, and writes once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from golow.levels.direct.formulas.literals import number
from golow.levels.direct.kernel_views import View
from golow.levels.direct.onednn.kernels import Kernel
from golow.levels.direct.onednn.kernels.elements import Statement, Written, elements, input_name
from golow.lower.operators.adam_update import AdamUpdate
from golow.lower.operators.rmsprop_update import RmspropUpdate
from golow.lower.operators.sgd_update import SgdUpdate

Update = SgdUpdate | AdamUpdate | RmspropUpdate

ROW, NUMBER = View("float32", (1,)), View("float32", (0,))


class Step(NamedTuple):
    """A parameter's step. rows, numbers: the operator's fields that it reads, of the parameter's
    size and single numbers; the learning rate has its sign reversed. expressions: in order, each
    with the name of its value. writes: those that are the operator's results. rests: whether
    nothing changes where the gradient and all that is kept are zero."""

    rows: Sequence[str]
    numbers: Sequence[str]
    expressions: Sequence[tuple[str, str]]
    writes: Sequence[str]
    rests: bool = False


def step(settings: Update) -> Step:
    """Return what an optimizer does to one parameter."""
    if isinstance(settings, SgdUpdate):
        found = _sgd(settings)
    else:
        found = _adam(settings) if isinstance(settings, AdamUpdate) else _rmsprop(settings)
    numbers = [*found.numbers, *(["clip"] if settings.clip is not None else [])]
    expressions = [("slope", _slope(settings)), *found.expressions]
    divides_by_zero = not isinstance(settings, SgdUpdate) and settings.epsilon == 0
    rests = not settings.weight_decay and not divides_by_zero
    return found._replace(numbers=numbers, expressions=expressions, rests=rests)


def update(of: Step, count: int) -> Kernel:
    """Pointers: the rows [count], the numbers -> the results [count], which may be rows."""
    given = [*of.rows, *of.numbers]
    statements = [
        *(Statement(name, "float32", input_name(index)) for index, name in enumerate(given)),
        *(Statement(name, "float32", text) for name, text in of.expressions),
    ]
    views = [ROW] * len(of.rows) + [NUMBER] * len(of.numbers)
    return elements(statements, views, [Written(name, ROW) for name in of.writes], [count])


def _slope(settings: Update) -> str:
    """The gradient, clipped, with the weight decay where it is a part of the gradient."""
    text = "gradient" if settings.clip is None else "gradient * clip"
    apart = isinstance(settings, AdamUpdate) and settings.decoupled
    if settings.weight_decay and not apart:
        text += f" + {number(settings.weight_decay)} * parameter"
    return text


def _sgd(settings: SgdUpdate) -> Step:
    factor = number(settings.factor)
    change = f"slope + {factor} * new_momentum" if settings.nesterov else "new_momentum"
    return Step(
        ("gradient", "parameter", "momentum"),
        ("learning_rate",),
        [
            ("new_momentum", f"{factor} * momentum + slope"),
            ("new_parameter", f"parameter + learning_rate * ({change})"),
        ],
        ("new_momentum", "new_parameter"),
    )


def _adam(settings: AdamUpdate) -> Step:
    first, second = settings.betas
    before = "parameter"
    if settings.weight_decay and settings.decoupled:
        before = f"(parameter + {number(settings.weight_decay)} * learning_rate * parameter)"
    divisor = f"(sqrtf(new_square) * root + {number(settings.epsilon)})"
    return Step(
        ("gradient", "parameter", "momentum", "square"),
        ("learning_rate", "rate", "root"),
        [
            ("new_momentum", f"{number(first)} * momentum + {number(1 - first)} * slope"),
            ("new_square", f"{number(second)} * square + {number(1 - second)} * slope * slope"),
            ("new_parameter", f"{before} + rate * new_momentum / {divisor}"),
        ],
        ("new_momentum", "new_square", "new_parameter"),
    )


def _rmsprop(settings: RmspropUpdate) -> Step:
    kept = settings.smoothing
    square = f"{number(kept)} * square + {number(1 - kept)} * slope * slope"
    change = f"slope / (sqrtf(new_square) + {number(settings.epsilon)})"
    rows, writes = ["gradient", "parameter", "square"], ["new_square"]
    expressions = [("new_square", square)]
    if settings.momentum is not None:
        change = f"{number(settings.factor)} * momentum + {change}"
        expressions.append(("new_momentum", change))
        change = "new_momentum"
        rows.append("momentum")
        writes.append("new_momentum")
    expressions.append(("new_parameter", f"parameter + learning_rate * ({change})"))
    return Step(rows, ("learning_rate",), expressions, [*writes, "new_parameter"])
