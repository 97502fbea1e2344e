"""Operators: typed, frozen records of an operation's arguments, with its meaning in PyTorch.

The vocabulary is the folder ``operators/``, with one file per operator. A file defines

* one `Operator` for the operation, and one for its gradient (``gradient_of``); the fields are the
  arguments with defaults filled in, the same in inference and in training;
* its ``meaning`` in PyTorch, which the verifier and the interpreter run;
* ``SPELLINGS``: ATen's full names for it, each with a function that turns a call into the record,
  or returns None if the call is something else.

In a graph an operator is a node called ``golow.NAME`` whose arguments are all keywords, so that it
prints as a call of its meaning. Nothing here imports torch, so that workers without a framework
can read graphs.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import msgspec

from golow.lower.ir.graph import Argument, Node, Ref, Symbol, as_number
from golow.records.record import Record

PREFIX = "golow."
Kind = TypeVar("Kind", bound="Operator")


class Operator(Record, frozen=True, kw_only=True):
    """Arguments of one operation; every operator is a subclass.

    gradient_of: the operator whose gradient this one is. is_view: its value may share the memory of
    ``x``. keeps_operands: a gradient that reads what its operator read, from where that lay then:
    an equal tensor elsewhere does not do. meaning: the operation on torch tensors, called with the
    fields as keywords; it returns a tensor, or a tuple of `results` tensors if there are several.
    """

    gradient_of: ClassVar[type[Operator] | None] = None
    is_view: ClassVar[bool] = False
    keeps_operands: ClassVar[bool] = False
    meaning: ClassVar[Callable[..., Any]]

    @property
    def results(self) -> int:
        """How many values it returns."""
        return 1

    @classmethod
    def op(cls) -> str:
        """Its name in graphs: ``golow.batch_norm`` for ``BatchNorm``."""
        return PREFIX + re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def of(cls, node: Node) -> Self | None:
        """The node's arguments if it is this operator, else None."""
        return read(node, cls) if node.op == cls.op() else None


def read(node: Node, kind: type[Kind]) -> Kind:
    """The arguments of a node that is this operator. Raises `msgspec.ValidationError` if one is
    missing or has the wrong type."""
    return msgspec.convert({name: _number(item) for name, item in node.keywords.items()}, kind)


def _argument(item: Argument) -> Argument:
    """The field of a record as nodes hold it: infinities and NaN as symbols."""
    if isinstance(item, tuple):
        return tuple(as_number(i) if isinstance(i, float) else i for i in item)
    return as_number(item) if isinstance(item, float) else item


def _number(item: Argument) -> Argument:
    """The argument as a record holds it; nodes hold infinities as symbols."""
    if isinstance(item, tuple):
        return tuple(
            float(i.name) if isinstance(i, Symbol) and i.kind == "float" else i for i in item
        )
    if isinstance(item, Symbol) and item.kind == "float":
        return float(item.name)
    return item


def record_of(node: Node) -> Operator | None:
    """The node's arguments; None for an operation outside the vocabulary."""
    kind = vocabulary().get(node.op)
    return None if kind is None else read(node, kind)


def written(node: Node, operator: Operator, **changes: Any) -> Node:
    """The node with its operation replaced by this operator. changes: further fields to replace."""
    fields: dict[str, Argument] = msgspec.structs.asdict(operator)
    return msgspec.structs.replace(
        node,
        op=operator.op(),
        arguments=(),
        keywords={name: _argument(item) for name, item in fields.items()},
        several=operator.results > 1,
        **changes,
    )


class ActivationFunction(NamedTuple):
    """An elementwise function, which other operators can absorb.

    forward(x, *numbers) and backward(gradient, value, *numbers) are its meaning in PyTorch. reads:
    whether ``value`` is the function's argument, its result, or either.
    """

    name: str
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    reads: Literal["argument", "result", "either"] = "argument"


@cache
def vocabulary() -> dict[str, type[Operator]]:
    """Every operator by its name in graphs."""
    found: dict[str, type[Operator]] = {}
    for module in _files():
        for item in vars(module).values():
            own = getattr(item, "__module__", "") == module.__name__
            if own and isinstance(item, type) and issubclass(item, Operator):
                found[item.op()] = item
    return found


@cache
def activation_functions() -> dict[str, ActivationFunction]:
    """Every activation by its name."""
    found = (getattr(module, "FUNCTION", None) for module in _files())
    return {item.name: item for item in found if isinstance(item, ActivationFunction)}


@cache
def spellings() -> Mapping[str, Callable[[Any], Operator | None]]:
    """For each ATen name the function that turns a call into an operator."""
    found: dict[str, Callable[[Any], Operator | None]] = {}
    for module in _files():
        own = getattr(module, "SPELLINGS", {})
        twice = own.keys() & found.keys()
        if twice:
            raise ValueError(f"{module.__name__} spells {', '.join(twice)} a second time")
        found |= own
    return found


def modules_in(package: ModuleType) -> Iterator[ModuleType]:
    """Import every module in the package's folder and below it, in the order of their names."""
    prefix = f"{package.__name__}."
    for item in sorted(pkgutil.walk_packages(package.__path__, prefix), key=lambda i: i.name):
        yield importlib.import_module(item.name)


def _files() -> Iterator[ModuleType]:
    yield from modules_in(importlib.import_module("golow.lower.operators"))


def references(operator: Operator) -> dict[str, Ref]:
    """The fields that are values of the graph, by name."""
    fields = msgspec.structs.asdict(operator)
    return {name: item for name, item in fields.items() if isinstance(item, Ref)}


def is_view(node: Node) -> bool:
    """True if the node's value may share the memory of what it reads."""
    kind = vocabulary().get(node.op)
    return kind is not None and kind.is_view
