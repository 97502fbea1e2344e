"""Memory descriptors and primitives as the calls that make them, each once."""

from __future__ import annotations

from ctypes import c_float
from typing import Any

from golow.levels.direct.emit.spelling import listed, single
from golow.levels.direct.onednn.bindings.constants import BINARY_ADD, BINARY_MUL, ELTWISE
from golow.levels.direct.onednn.bindings.library import Descriptor, Listed
from golow.levels.direct.onednn.bindings.origins import (
    Asked,
    Part,
    Permuted,
    Reshaped,
    Strided,
    Tagged,
)
from golow.levels.direct.onednn.bindings.primitive import PostOp, PrimitiveDescription
from golow.levels.direct.onednn.emit.spelling import (
    ALGORITHMS,
    ENUMERATIONS,
    QUERIES,
    TAGS,
    data_type,
)


class Layouts:
    """Names layouts (``l0``) and descriptions of primitives (``d0``). lines: to this list it adds
    what defines them, before they are used."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._names: dict[str, str] = {}
        # Names of objects; the objects are kept, so that no other gets their identity.
        self._known: dict[int, tuple[object, str]] = {}

    def layout(self, descriptor: Descriptor) -> str:
        """The name of a layout."""
        known = self._known.get(id(descriptor))
        if known is not None:
            return known[1]
        made = self._made(descriptor)
        named = isinstance(descriptor.origin, Tagged) or descriptor.is_opaque
        words = "" if named else f"  // {descriptor}"
        return self._defined(descriptor, "const Layout l", made, words)

    def description(self, description: PrimitiveDescription) -> str:
        """The name of a primitive that is described."""
        known = self._known.get(id(description))
        if known is not None:
            return known[1]
        name = description.name
        if name == "reorder":
            source, target = map(self.layout, description.arguments)
            made = f"plan.reorder({source}, {target})"
        else:
            after = listed(map(self._post_op, description.post_ops))
            numbers = iter(ENUMERATIONS.get(name, ()))
            given = [self._argument(item, numbers) for item in description.arguments]
            function = f"dnnl_{name}_primitive_desc_create"
            made = f"plan.describe({', '.join((function, after, *given))})"
        found = self._defined(description, "const Description d", made)
        if description.implementation:
            self._lines.append(f"plan.skip({found}, {description.implementation});")
        return found

    def _defined(self, item: object, prefix: str, made: str, words: str = "") -> str:
        name = self._names.get(made)
        if name is None:
            short = prefix.rpartition(" ")[2]
            number = sum(each.startswith(short) for each in self._names.values())
            name = self._names[made] = f"{short}{number}"
            self._lines.append(f"{prefix}{number} = {made};{words}")
        self._known[id(item)] = (item, name)
        return name

    def _made(self, descriptor: Descriptor) -> str:
        match descriptor.origin:
            case Strided(shape, strides, dtype):
                return f"plan.strided({data_type(dtype)}, {listed(shape)}, {listed(strides)})"
            case Tagged(shape, tag, dtype):
                return f"plan.tagged({data_type(dtype)}, {listed(shape)}, {TAGS[tag]})"
            case Reshaped(base, shape):
                return f"plan.reshaped({self.layout(base)}, {listed(shape)})"
            case Permuted(base, where):
                return f"plan.permuted({self.layout(base)}, {listed(where)})"
            case Part(base, shape, offsets):
                return f"plan.part({self.layout(base)}, {listed(shape)}, {listed(offsets)})"
            case Asked(description, query, position):
                asked = f"{self.description(description)}, {QUERIES[query]}, {position}"
                return f"plan.asked({asked}, {_expected(descriptor)})"

    def _argument(self, item: Any, numbers: Any) -> str:
        if item is None:
            return "nullptr"
        if isinstance(item, Descriptor):
            return self.layout(item)
        if isinstance(item, PrimitiveDescription):
            return self.description(item)
        if isinstance(item, Listed):
            return self._array(item)
        if isinstance(item, c_float):
            return single(item.value)
        named = next(numbers, None)
        return str(item) if named is None else named[item]

    def _array(self, item: Listed) -> str:
        if all(isinstance(value, Descriptor) for value in item.values):
            return f"Layouts{{{listed(map(self.layout, item.values))}}}"
        if any(isinstance(value, float) for value in item.values):
            return f"Floats{{{listed(map(single, item.values))}}}"
        return f"Dims{listed(item.values)}"

    def _post_op(self, item: PostOp) -> str:
        if item.kind == "sum":
            return f"sum({single(item.alpha)})"
        if item.descriptor is not None:
            algorithm = {"add": BINARY_ADD, "mul": BINARY_MUL}[item.kind]
            return f"binary({ALGORITHMS[algorithm]}, {self.layout(item.descriptor)})"
        numbers = f"{single(c_float(item.alpha).value)}, {single(c_float(item.beta).value)}"
        return f"eltwise({ALGORITHMS[ELTWISE[item.kind]]}, {numbers})"


def _expected(descriptor: Descriptor) -> str:
    """Properties of a layout as the library reported them, which the program requires again."""
    if descriptor.is_opaque:
        return f"{{{descriptor.bytes}, {{}}, {{}}}}"
    blocks = listed(listed(block) for block in descriptor.blocks)
    return f"{{{descriptor.bytes}, {listed(descriptor.strides)}, {blocks}}}"
