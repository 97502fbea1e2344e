"""Sums and means of functions of elements, which keep their argument out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from golow.lower.ir.graph import Node, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.fused import decode_parts, last_value
from golow.lower.operators.reduce import Reduce

if TYPE_CHECKING:
    from torch import Tensor


class FusedReduce(Operator, frozen=True, kw_only=True):
    """The sum or mean over these axes, in ascending order, of what the program's last node gives.
    keep: they stay, with size 1. inputs and program: as in `Fused`."""

    inputs: tuple[Ref, ...]
    program: tuple[str, ...]
    function: Literal["sum", "mean"]
    axes: tuple[int, ...]
    keep: bool

    @property
    def parts(self) -> Iterator[Node]:
        """The nodes of the program."""
        return decode_parts(self.program)

    @staticmethod
    def meaning(
        inputs: tuple[Tensor, ...],
        program: tuple[str, ...],
        function: Literal["sum", "mean"],
        axes: tuple[int, ...],
        keep: bool,
    ) -> Tensor:
        return Reduce.meaning(function, last_value(inputs, program), axes, keep)
