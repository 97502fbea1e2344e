"""A graph of one call of ATen's, made of tensors and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.aten.canonical import canonicalise
from golow.lower.ir.graph import (
    Argument,
    Graph,
    GraphInput,
    GraphOutput,
    Node,
    Ref,
    Symbol,
    Value,
    as_number,
)
from golow.lower.ir.verify import operation, verify


def tensor(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in float64, of both signs and none of them zero."""
    generator = torch.Generator().manual_seed(seed + 7 * len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


class Transposed(NamedTuple):
    """An argument that another node has to make: the transpose of this matrix."""

    of: Tensor


class Call:
    """A graph with one call of ATen's, and a tensor for each of its inputs."""

    def __init__(
        self, op: str, position: list[Any], keywords: dict[str, Any], results: int | None = None
    ) -> None:
        self.given: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.concrete: dict[str, Tensor] = {}
        arguments = tuple(self._argument(item) for item in position)
        named = {name: self._argument(item) for name, item in keywords.items()}
        torch.manual_seed(0)
        found = operation(op)(
            *(self._value(item) for item in position),
            **{name: self._value(item) for name, item in keywords.items()},
        )
        several = isinstance(found, tuple)
        tensors = found if several else (found,)
        self.wanted = {
            f"output/{i}": each for i, each in enumerate(tensors[:results]) if each is not None
        }
        outputs = tuple(
            value(f"y{i}", each) if f"output/{i}" in self.wanted else None
            for i, each in enumerate(tensors)
        )
        self.nodes.append(
            Node(name="y", op=op, arguments=arguments, keywords=named, outputs=outputs,
                 several=several)
        )  # fmt: skip
        self.graph = Graph(
            name="call",
            mode="infer",
            inputs=tuple(
                GraphInput(value=value(name, each), kind="input", target=name)
                for name, each in self.given.items()
            ),
            nodes=tuple(self.nodes),
            outputs=tuple(
                GraphOutput(name=f"y{name.partition('/')[2]}", kind="output", target=name[7:])
                for name in self.wanted
            ),
        )

    def _argument(self, item: Any) -> Argument:
        if isinstance(item, list):
            return tuple(self._argument(each) for each in item)  # type: ignore[return-value]
        if isinstance(item, Transposed):
            source, name = self._argument(item.of), f"t{len(self.nodes)}"
            made = value(name, item.of.t())
            self.nodes.append(
                Node(name=name, op="aten.t.default", arguments=(source,), outputs=(made,))
            )
            return Ref(name=name)
        if isinstance(item, Tensor):
            name = f"x{len(self.given)}"
            self.given[name] = item
            return Ref(name=name)
        if isinstance(item, torch.dtype | torch.memory_format):
            kind = "dtype" if isinstance(item, torch.dtype) else "memory_format"
            return Symbol(kind=kind, name=str(item).removeprefix("torch."))  # type: ignore[arg-type]
        return as_number(item) if isinstance(item, float) else item

    @staticmethod
    def _value(item: Any) -> Any:
        return item.of.t() if isinstance(item, Transposed) else item


def value(name: str, given: Tensor) -> Value:
    dtype = str(given.dtype).removeprefix("torch.")
    return Value(name=name, shape=tuple(given.shape), dtype=dtype)


def call(op: str, *position: Any, results: int | None = None, **keywords: Any) -> Graph:
    """The graph of the call after `canonicalise`."""
    return verify(canonicalise(verify(Call(op, list(position), keywords, results).graph)))


# ---------------------------------------------------------------- as Python writes it


def arranged(
    draw: Callable[[st.SearchStrategy[Any]], Any], op: Any, named: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The call's arguments by position and by keyword, as one of the ways in which Python can write
    it: defaults written out or left out, keywords from some argument on."""
    position, keywords = [], {}
    by_position = True
    for parameter in op._schema.arguments:
        name = parameter.name
        if name not in named:
            by_position = False
            continue
        default = parameter.default_value if parameter.has_default_value() else ...
        if _is_default(named[name], default) and draw(st.booleans()):
            by_position = False
            continue
        by_position = by_position and not parameter.kwarg_only and draw(st.integers(0, 3)) > 0
        if by_position:
            position.append(named[name])
        else:
            keywords[name] = named[name]
    return position, keywords


def _is_default(given: Any, default: Any) -> bool:
    return type(given) in (int, float, bool, str, type(None), list) and given == default
