"""Iterations of a plan on memory of the caller's, which may be elsewhere in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_long, c_void_p
from functools import partial
from struct import Struct

from golow.levels.direct.onednn.bindings.library import OneDnnError, library
from golow.levels.direct.onednn.run.compiled_calls import Call, Start, joined_at
from golow.levels.direct.onednn.run.execution import Execution
from golow.levels.direct.onednn.run.kernel_compilation import openmp
from golow.levels.direct.onednn.steps.built_plan import Tensor


class Iterations:
    """Iterations of an execution. One may run at a time.

    tensors: inputs, and outputs that are the caller's memory; an iteration gets an address for
    each, in this order. None stands for an address that is not used. Arrays there are row-major and
    stay until the iteration is over. threads: that iterations use; None leaves their number.
    """

    def __init__(
        self, execution: Execution, tensors: Sequence[Tensor | None], threads: int | None = None
    ) -> None:
        addresses = (c_long * len(tensors))()
        start = Start(
            addresses,
            list(execution.uses(tensors)),
            library().dnnl_memory_set_data_handle,
            None if threads is None else openmp().omp_set_num_threads,
            threads or 0,
        )
        self._write = partial(Struct(f"{len(tensors)}l").pack_into, addresses, 0)
        self._copy_in = execution.copying_in(tensors)
        self._begin = partial(_begin, start)
        self._calls: list[Call] = (
            [self._begin, *(bound.call for bound in execution.bound)]
            if execution.player is None
            else joined_at(start, execution.bound, execution.player)
        )
        self._kept = execution  # its memory

    def run(self, *addresses: int) -> None:
        """Run an iteration on memory at these addresses. Raises `OneDnnError` if a primitive
        fails."""
        self._write(*addresses)
        if self._copy_in is not None:
            self._copy_in(addresses)
        for call in self._calls:
            if status := call():
                raise OneDnnError("dnnl_primitive_execute", status)

    def prepare(self, *addresses: int) -> None:
        """Let an iteration that is run step by step use memory at these addresses."""
        self._write(*addresses)
        if self._copy_in is not None:
            self._copy_in(addresses)
        self._begin()


def _begin(start: Start) -> None:
    """Do what compiled code does before the first call."""
    if start.set_threads is not None:
        start.set_threads(start.threads)
    for use in start.uses:
        there = start.addresses[use.place] + use.offset
        if use.is_pointer:
            c_void_p.from_address(use.user).value = there
        elif status := start.set_address(use.user, there):
            raise OneDnnError("dnnl_memory_set_data_handle", status)
