"""Elementwise functions that the level cannot run. `fused_pointwise.py` puts the others into
kernels."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.direct.cudnn.problems.element_types import OF_8_BITS
from golow.levels.direct.formulas.expressions import FORMULAS, computing_type
from golow.levels.direct.implementation import Implementation, Question, in_groups
from golow.lower.operators.pointwise import OF_FLOATS, Pointwise

FLOATING = ("float32", "bfloat16", "float16")


def stored_in(arguments: Pointwise, dtype: str, of_operands: Sequence[str]) -> str:
    """Return the type in which a result of the graph's dtype is stored. Numbers take the widest
    type among the operands; what autocast computes in float32 stays so."""
    if dtype != "float32":
        return dtype
    floats = {operand for operand in of_operands if operand in FLOATING}
    exact = arguments.function in OF_FLOATS - {"divide", "sine", "cosine"}
    exact = exact or arguments.function == "power"
    return floats.pop() if len(floats) == 1 and not exact else "float32"


def _refuse(arguments: Pointwise, question: Question) -> str:
    types = {question.values[name].dtype for name in question.node.references()}
    narrow = sorted(types & OF_8_BITS)
    if narrow and arguments.function != "convert":
        return f"{question.node.op} with the function {arguments.function} on {narrow[0]}"
    formula = FORMULAS.get(arguments.function)
    computed = computing_type(arguments, lambda reference: question.value(reference).dtype)
    if formula is None or (computed == "float32" and not formula.floats):
        return f"{question.node.op} with the function {arguments.function}"
    return ""


IMPLEMENTATIONS = (Implementation(Pointwise, in_groups, _refuse, OF_8_BITS),)
