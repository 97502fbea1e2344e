"""Engines that are launches of golow's own kernels alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from golow.levels.direct.cudnn.shared_kernels import Kernel

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu

Address = TypeVar("Address")


class OwnEngine(ABC):
    """Runs by launching kernels."""

    _gpu: Gpu

    @abstractmethod
    def launches(
        self, addresses: Sequence[Address], workspace: Address
    ) -> Iterable[tuple[Kernel, Sequence[Any]]]:
        """The kernels in their order, each with its pointers: these addresses, or 0 for what is
        absent. An address may be anything that stands for one."""

    def kernels(self, operands: int) -> Iterable[Kernel]:
        """The kernels that it launches for so many operands."""
        return (kernel for kernel, _ in self.launches([0] * operands, 0))

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        """Enqueue it on the operands, in the order that the operation documents."""
        for kernel, pointers in self.launches(addresses, workspace):
            self._gpu.launch(kernel, pointers, side)
