"""Attention by golow's own kernels: of float32 tensors, with tf32 products, and of 16-bit tensors
with float32 numbers that are added to the scores. cuDNN's are of 16-bit tensors alone, in all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from golow.levels.direct.cudnn.engines.own_engine import Address, OwnEngine
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.products import AttentionProblem
from golow.levels.direct.cudnn.shared_kernels import Kernel, flash_attention
from golow.levels.direct.cudnn.shared_kernels.flash_attention import Tiling

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu


class OwnAttention(OwnEngine):
    """Attention in one direction; tiling: forward."""

    kind = "own attention"

    def __init__(self, problem: AttentionProblem, gpu: Gpu, tiling: Tiling | None) -> None:
        self._problem, self._gpu, self._tiling = problem, gpu, tiling
        self._kernels: tuple[Kernel, ...]
        if tiling is not None:
            kind = problem.dtype if flash_attention.is_half(problem) else "tf32"
            self.name = f"flash {kind} {tiling.warps}x{tiling.keys}"
            self._kernels, self.workspace = (flash_attention.forward(problem, tiling),), 0
            return
        self.name = "flash tf32 backward"
        self._kernels = flash_attention.backward(problem)
        self.workspace = ITEM_BYTES["float32"] * problem.rows.extent

    def launches(
        self, addresses: Sequence[Address], workspace: Address
    ) -> Iterable[tuple[Kernel, Sequence[Any]]]:
        """Launches on operands in the order of `AttentionProblem`."""
        problem, given = self._problem, list[Any](addresses)
        if problem.added is None:
            given.insert(3, 0)
        if problem.gradient is None:
            half = flash_attention.is_half(problem)
            pointers = given if problem.keeps or half else [*given, 0]
        else:
            pointers = [*given, workspace]
        return [(kernel, pointers) for kernel in self._kernels]

    def encode(self) -> bytes:
        """The tiling; making it again takes almost no time."""
        return msgspec.msgpack.encode(self._tiling)


def own_attention(problem: AttentionProblem, gpu: Gpu, most: int) -> Iterator[OwnAttention]:
    """Yield golow's engines for it, the likeliest first; none for what they do not take."""
    if not flash_attention.takes(problem):
        return
    found = flash_attention.tilings(problem)[:most] if problem.gradient is None else [None]
    for tiling in found:
        yield OwnAttention(problem, gpu, tiling)


def restore(problem: AttentionProblem, gpu: Gpu, data: bytes) -> OwnAttention:
    """Return the engine whose `encode` returned these bytes."""
    return OwnAttention(problem, gpu, msgspec.msgpack.decode(data, type=Tiling | None))
