"""Several functions of elements as one operation, which keeps what is between them out of
memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from golow.lower.ir.graph import Node, Ref
from golow.lower.ir.operator import Operator, record_of
from golow.lower.ir.rewriting import result

if TYPE_CHECKING:
    from torch import Tensor


class Fused(Operator, frozen=True, kw_only=True):
    """Functions of elements, one after the other. inputs: values of the graph. program: the nodes
    as `encode_part` writes them; they read the inputs, by `input_name`, and earlier nodes. yields:
    the values that are read elsewhere, whose shapes are all the same."""

    inputs: tuple[Ref, ...]
    program: tuple[str, ...]
    yields: tuple[str, ...]

    @property
    def results(self) -> int:
        return len(self.yields)

    @property
    def parts(self) -> Iterator[Node]:
        """The nodes of the program."""
        return decode_parts(self.program)

    @staticmethod
    def meaning(
        inputs: tuple[Tensor, ...], program: tuple[str, ...], yields: tuple[str, ...]
    ) -> Tensor | tuple[Tensor, ...]:
        values = {input_name(index): tensor for index, tensor in enumerate(inputs)}
        for part in decode_parts(program):
            operator, output = record_of(part), part.outputs[0]
            if operator is None or output is None:
                raise ValueError(f"{part.op} is not an elementwise function")
            fields = msgspec.structs.asdict(operator).items()
            values[output.name] = operator.meaning(**{k: _given(v, values) for k, v in fields})
        found = tuple(values[name] for name in yields)
        return found if len(found) > 1 else found[0]


def last_value(inputs: tuple[Tensor, ...], program: tuple[str, ...]) -> Tensor:
    """Return the value of a program's last node."""
    *_, last = decode_parts(program)
    found = Fused.meaning(inputs, program, (result(last),))
    assert not isinstance(found, tuple)  # noqa: S101 - one value is asked for
    return found


def input_name(index: int) -> str:
    """How the program names an input; no value of a graph has such a name."""
    return f"input {index}"


def encode_part(node: Node) -> str:
    """A node as a line of JSON."""
    return msgspec.json.encode(node).decode()


def decode_parts(program: Iterable[str]) -> Iterator[Node]:
    """Invert `encode_part` for all lines."""
    return (msgspec.json.decode(line, type=Node) for line in program)


def _given(item: Any, values: Mapping[str, Tensor]) -> Any:
    if isinstance(item, tuple):
        return tuple(_given(i, values) for i in item)
    return values[item.name] if isinstance(item, Ref) else item
