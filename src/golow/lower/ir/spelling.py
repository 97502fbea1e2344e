"""An ATen call as spellings read it: arguments by their names in ATen's schema, with defaults
filled in and types checked."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import torch

from golow.lower.ir.graph import Argument, Node, Ref, Symbol, Value
from golow.lower.ir.rewriting import Links

Item = TypeVar("Item")


class NotSpelledError(Exception):
    """The spelling does not apply to the call: an argument has another type."""


class Call:
    """One node of the captured graph. Each accessor raises `NotSpelledError` if the argument has
    another type than the one requested; the node then stays as it is."""

    def __init__(self, node: Node, links: Links) -> None:
        self.node, self._links = node, links
        self._given = bound(node)

    @property
    def names(self) -> frozenset[str]:
        """The names of all its arguments."""
        return frozenset(self._given)

    def given(self, name: str) -> Argument:
        """The argument, of any type."""
        return self._given[name]

    def ref(self, name: str) -> Ref:
        """A value of the graph."""
        return self._typed(name, Ref)

    def ref_or_none(self, name: str) -> Ref | None:
        """A value of the graph, or None."""
        return None if self._given[name] is None else self.ref(name)

    def refs(self, name: str) -> tuple[Ref, ...]:
        """Values of the graph."""
        items = self._given[name]
        if not isinstance(items, tuple):
            raise NotSpelledError(name)
        return tuple(item if isinstance(item, Ref) else _refuse(name) for item in items)

    def integer(self, name: str) -> int:
        """An integer."""
        return self._typed(name, int)

    def number(self, name: str) -> float:
        """A number, finite or infinite."""
        item = self._given[name]
        if isinstance(item, Symbol) and item.kind == "float":
            return float(item.name)
        if isinstance(item, int | float) and not isinstance(item, bool):
            return float(item)
        raise NotSpelledError(name)

    def flag(self, name: str) -> bool:
        """True or False."""
        item = self._given[name]
        return item if isinstance(item, bool) else _refuse(name)

    def text(self, name: str) -> str:
        """A string."""
        return self._typed(name, str)

    def integers(self, name: str) -> tuple[int, ...]:
        """Integers. A single number counts as a list of one, None as an empty list."""
        items = self._given[name]
        listed = () if items is None else items if isinstance(items, tuple) else (items,)
        return tuple(item if type(item) is int else _refuse(name) for item in listed)

    def sizes(self, name: str, axes: int) -> tuple[int, ...]:
        """A size for each of this many axes, given as one number or a list of one or as many."""
        items = self.integers(name)
        if len(items) not in (1, axes):
            raise NotSpelledError(name)
        return items * axes if len(items) == 1 else items

    def pair(self, name: str) -> tuple[int, int]:
        """A size for both axes of an image."""
        height, width = self.sizes(name, 2)
        return height, width

    def pool_stride(self, axes: int) -> tuple[int, ...]:
        """The stride of pooling windows over this many axes; by default their size."""
        return self.sizes("stride" if self.integers("stride") else "kernel_size", axes)

    def flags(self, name: str) -> tuple[bool, ...]:
        """Several booleans."""
        items = self._given[name]
        if not isinstance(items, tuple):
            raise NotSpelledError(name)
        return tuple(item if isinstance(item, bool) else _refuse(name) for item in items)

    def axis(self, name: str, of: str = "self") -> int:
        """An axis of an argument, counted from the first."""
        return self.integer(name) % max(self.rank(of), 1)

    def axes(self, name: str, of: str = "self") -> tuple[int, ...]:
        """Axes of an argument in ascending order; all of them if none is named."""
        rank = self.rank(of)
        chosen = {axis % rank for axis in self.integers(name)} if rank else set()  # 0 or -1 then
        return tuple(sorted(chosen or range(rank)))

    def value(self, name: str) -> Value:
        """Shape and dtype of an argument that is a value."""
        return self._links.values[self.ref(name).name]

    def dtype(self, reference: Ref) -> str:
        """The dtype of a value."""
        return self._links.values[reference.name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an argument that is a value."""
        return self.value(name).shape

    def rank(self, name: str) -> int:
        """Number of axes of an argument that is a value."""
        return len(self.shape(name))

    def output(self, index: int = 0) -> Value:
        """The output of the call with this index."""
        found = self.node.outputs[index]
        return found if found is not None else _refuse(f"output {index}")

    def same_dtype(self, *names: str) -> bool:
        """True if these arguments have the result's dtype, so that the call converts nothing."""
        return all(self.value(name).dtype == self.output().dtype for name in names)

    def transposed(self, name: str) -> Ref | None:
        """The matrix whose transpose this argument is; None if it is not a transpose."""
        maker = self._links.made_by(self._given[name], "aten.t.default")
        source = None if maker is None else self._links.nodes[maker].arguments[0]
        return source if isinstance(source, Ref) else None

    def made_by_or_given(self, name: str, op: str) -> bool:
        """True if the argument is a value of this operation, or an input of the graph."""
        item = self._given[name]
        made = isinstance(item, Ref) and item.name in self._links.maker
        return not made or self._links.made_by(item, op) is not None

    def only_read_by(self, name: str, *ops: str) -> bool:
        """True if nothing but these operations reads the value, and the graph does not return
        it."""
        readers = (self._links.nodes[position].op for position in self._links.readers[name])
        return name not in self._links.returned and all(op in ops for op in readers)

    def _typed(self, name: str, kind: type[Item]) -> Item:
        item = self._given[name]
        if isinstance(item, kind) and not isinstance(item, bool):
            return item
        raise NotSpelledError(name)


def bound(node: Node) -> dict[str, Argument]:
    """The arguments of an ATen call by their names in its schema, with defaults filled in."""
    found: dict[str, Argument] = {}
    for position, parameter in enumerate(_parameters(node)):
        if position < len(node.arguments):
            found[parameter.name] = node.arguments[position]
        elif parameter.name in node.keywords:
            found[parameter.name] = node.keywords[parameter.name]
        else:
            found[parameter.name] = _default(parameter.default_value)
    return found


def given_anew(node: Node, **changed: Argument) -> Node:
    """The ATen call with other arguments, by their names in its schema."""
    arguments: list[Argument] = []
    keywords: dict[str, Argument] = {}
    for parameter in _parameters(node):
        item = (bound(node) | changed)[parameter.name]
        if not parameter.kwarg_only:
            arguments.append(item)
        elif item != _default(parameter.default_value):
            keywords[parameter.name] = item
    return msgspec.structs.replace(node, arguments=tuple(arguments), keywords=keywords)


def _parameters(node: Node) -> Any:
    namespace, name, overload = node.op.split(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    return getattr(packet, overload)._schema.arguments


def _default(value: Any) -> Argument:
    if isinstance(value, list | tuple):
        return tuple(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _refuse(name: str) -> Any:
    raise NotSpelledError(name)
