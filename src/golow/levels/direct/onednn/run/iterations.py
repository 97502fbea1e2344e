"""Iterations of a plan on memory of the caller's, which may be elsewhere in each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    inputs, others: tensors in the caller's memory; others are outputs, or targets in training. None
    stands for one whose address is not used. Arrays there are row-major and stay until the
    iteration is over. threads: that iterations use; None leaves their number. copies: outputs that
    are copied to the caller's memory, by their places among the others, with what does so.
    """

    def __init__(
        self,
        execution: Execution,
        inputs: Sequence[Tensor | None],
        others: Sequence[Tensor | None],
        threads: int | None = None,
        copies: Sequence[tuple[int, Callable[[int], object]]] = (),
    ) -> None:
        tensors = [*inputs, *others]
        addresses = (c_long * len(tensors))()
        start = Start(
            addresses,
            list(execution.uses(tensors)),
            library().dnnl_memory_set_data_handle,
            None if threads is None else openmp().omp_set_num_threads,
            threads or 0,
        )
        self._inputs, self._others = len(inputs), len(others)
        self._write = partial(Struct(f"{len(tensors)}l").pack_into, addresses, 0)
        copy_in = execution.copying_in(tensors)
        before: list[Call] = [] if copy_in is None else [partial(copy_in, addresses)]
        self._prepare: list[Call] = [*before, partial(_begin, start)]
        self._calls: list[Call] = (
            [*self._prepare, *(bound.call for bound in execution.bound)]
            if execution.player is None
            else [*before, *joined_at(start, execution.bound, execution.player)]
        )
        self._copies = copies
        self.run_timed = execution.run_timed
        self._kept = execution  # its memory

    def run(self, inputs: Sequence[int], others: Sequence[int]) -> None:
        """Run an iteration on memory at these addresses, of which those after the last one that is
        used are left out. Raises `OneDnnError` if a primitive fails."""
        self._write(*inputs[: self._inputs], *others[: self._others])
        for call in self._calls:
            if status := call():
                raise OneDnnError("dnnl_primitive_execute", status)
        for place, copy in self._copies:
            copy(others[place])

    def prepare(self, inputs: Sequence[int], others: Sequence[int]) -> None:
        """Let an iteration that is run step by step use memory at these addresses."""
        self._write(*inputs[: self._inputs], *others[: self._others])
        for call in self._prepare:
            call()


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
