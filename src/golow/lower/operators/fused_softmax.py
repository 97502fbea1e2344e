"""softmax of functions of elements, which keeps its argument out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from golow.lower.ir.graph import Node, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.fused import decode_parts, last_value

if TYPE_CHECKING:
    from torch import Tensor


class FusedSoftmax(Operator, frozen=True, kw_only=True):
    """softmax over the last axis; log: its logarithm. inputs and program: as in `Fused`; it is
    taken of what the program's last node gives. rounded: only products read the result, which take
    it in the type in which they compute."""

    inputs: tuple[Ref, ...]
    program: tuple[str, ...]
    log: bool
    rounded: bool

    @property
    def parts(self) -> Iterator[Node]:
        """The nodes of the program."""
        return decode_parts(self.program)

    @staticmethod
    def meaning(
        inputs: tuple[Tensor, ...],
        program: tuple[str, ...],
        log: bool,
        rounded: bool,
    ) -> Tensor:
        x = last_value(inputs, program)
        return x.log_softmax(-1) if log else x.softmax(-1)
