"""The counting of batches, and what arithmetic the level cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.refusing import without_formula
from golow.levels.direct.cudnn.shared_kernels.elements import elements
from golow.levels.direct.cudnn.steps.strided_copies import whole
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import not_floating
from golow.lower.ir.graph import Ref
from golow.lower.operators.binary import Binary

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def count(build: Builder, arguments: Binary) -> None:
    """One more: a counter of the state, or any other integers. `fused_pointwise.py` has the
    arithmetic of floats."""
    if build.counters.is_count(build.current.output().name):
        build.counters.count(build, arguments.a)
        return
    x = build.values.rows(arguments.a)
    result = build.memory.new(build.current.output().name, x.shape, x.layout)
    kernel = elements("a + 1LL", [whole(x)], whole(result), x.shape, "int64")
    build.steps.kernel(kernel, [x], [result])
    build.values.define(0, result)


def _refuse(arguments: Binary, question: Question) -> str:
    counts = arguments.function == "add" and arguments.b == 1 and arguments.activation is None
    if counts and question.value(arguments.a).dtype == "int64":
        return ""
    second = arguments.b if isinstance(arguments.b, Ref) else None
    return (
        not_floating(question, arguments.a, second)
        or without_formula(question, arguments.activation)
        or _refuse_shapes(arguments.a, second, question)
    )


def _refuse_shapes(a: Ref, b: Ref | None, question: Question) -> str:
    output = question.output()
    given = [question.value(reference).shape for reference in (a, b) if reference is not None]
    if output is None:
        return ""
    if output.shape not in given:
        return f"{question.node.op} that broadcasts both arguments"
    return ""


IMPLEMENTATIONS = (Implementation(Binary, count, _refuse),)
