"""Sums and means of functions of elements, which keep their argument out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from golow.lower.ir.graph import Node, Ref
from golow.lower.ir.operator import Operator
from golow.lower.ir.rewriting import result
from golow.lower.operators.fused import Fused, decode_parts
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
        *_, last = decode_parts(program)
        x = Fused.meaning(inputs, program, (result(last),))
        assert not isinstance(x, tuple)  # noqa: S101 - there is one argument
        return Reduce.meaning(function, x, axes, keep)
