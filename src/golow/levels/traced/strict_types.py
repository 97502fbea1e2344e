"""Functions of elements for frameworks that convert no types by themselves: each operand is cast to
PyTorch's common type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from golow.levels.traced.dialect import StrictDialect
from golow.levels.traced.pointwise_functions import BOUNDED, COMPARISONS, LOGIC, TESTS
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref, Value
from golow.lower.operators.pointwise import Pointwise


class Spelling(NamedTuple):
    """A framework's functions of elements.

    functions: by name. fmod: that of float values, with PyTorch's gradient. powers: those that have
    a name, by exponent; their gradient is then a product. of_tensors: those of which a number has
    to be a tensor.
    """

    dialect: StrictDialect
    functions: Mapping[str, str]
    fmod: str
    powers: Mapping[float, str]
    of_tensors: Collection[str]

    def build(self, writer: Writer, given: Pointwise) -> None:
        """``function(*operands)``, converted to the type of the result."""
        values = [item for item in given.operands if isinstance(item, Ref)]
        found, image = writer.together(*values)
        names = iter(found)
        wanted, computed = self.dtypes(given, writer.values)
        operands = [
            self.dialect.cast(next(names), writer.value(item).dtype, dtype)
            if isinstance(item, Ref)
            else self._literal(given, item, dtype)
            for item, dtype in zip(given.operands, wanted, strict=True)
        ]
        result = self._function(given, computed).format(*operands, m=self.dialect.module)
        writer.put(self.dialect.cast(result, computed, given.dtype), image)

    def dtypes(self, given: Pointwise, values: Mapping[str, Value]) -> tuple[list[str], str]:
        """The type in which each operand is taken, and that of what the function then gives."""
        own = [_dtype(item, values) for item in given.operands]
        common = max(own, key=list(self.dialect.dtypes).index)
        if given.function in TESTS:
            return own, "bool"
        if given.function in COMPARISONS:
            return [common] * len(own), "bool"
        if given.function in LOGIC:
            return ["bool"] * len(own), "bool"
        if given.function == "convert":
            return own, own[0]
        if given.function == "choose":
            return ["bool", given.dtype, given.dtype], given.dtype
        wanted = given.dtype if given.dtype != "bool" else common
        return [wanted] * len(own), wanted

    def _literal(self, given: Pointwise, item: float, dtype: str) -> str:
        """A number in that type."""
        number = bool(item) if dtype == "bool" else float(item) if dtype == "float32" else int(item)
        if given.function in self.of_tensors:
            return self.dialect.typed(number, dtype)
        return self.dialect.operand(number)

    def _function(self, given: Pointwise, computed: str) -> str:
        """The spelling of the function, on values of that type."""
        second = given.operands[1] if len(given.operands) > 1 else None
        if given.function == "fmod" and computed == "float32":
            return self.fmod
        if second is not None and not isinstance(second, Ref):
            if given.function in BOUNDED:
                return BOUNDED[given.function]
            if given.function == "power" and second in self.powers:
                return self.powers[second]
        return self.functions[given.function]


def _dtype(item: Ref | float, values: Mapping[str, Value]) -> str:
    """Type of a value, or the least of a number."""
    if isinstance(item, Ref):
        return values[item.name].dtype
    if isinstance(item, float):
        return "float32"
    return "bool" if isinstance(item, bool) else "uint8" if 0 <= item < 256 else "int32"
