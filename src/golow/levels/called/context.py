"""One memory for iterations of a called module, and the calls over it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.exact_inputs import data_ptr
from golow.levels.called.forks import forks, require_own_process
from golow.levels.called.lent_outputs import LentOutputs
from golow.levels.called.memory_overlap import require_apart, spans
from golow.levels.called.outputs import Outputs
from golow.levels.called.sizes import Size, in_words
from golow.levels.called.target import Target, TargetPlan, over_one_arena
from golow.levels.called.uncopied import Uncopied
from golow.records.errors import GolowError


class Context(Uncopied):
    """One memory for iterations over the weights of a compiled module. One call may run at a time;
    calls of several contexts may run at once, in several threads.

    inputs, outputs: of the module.
    """

    instead = "for another thread: f.context(); for another process: golow.compile, there."

    def __init__(
        self, inputs: CallInputs, outputs: Outputs, plans: Mapping[Size, TargetPlan], target: Target
    ) -> None:
        self._lock = threading.Lock()
        self._running = over_one_arena(target, plans)
        self.inputs, self.outputs = inputs, outputs
        self._lent = LentOutputs(outputs)
        self._forks = len(forks)
        # A call is short: what it needs is found here, once.
        self._exact, self._new, self._whole = inputs.exact.__call__, outputs.new, outputs.whole

    def __call__(self, *given: Any, out: Any = None, borrow: bool = False, **named: Any) -> Any:
        """Run the module on its inputs and return its outputs. out: memory for the outputs, in the
        structure of the module's output; nothing is allocated then, and batch and length must be
        compiled sizes. borrow: return outputs in memory of this context, which its next call with
        ``borrow`` overwrites. Raises `GolowError` for inputs that do not fit.
        """
        if not self._lock.acquire(False):  # by name it takes longer
            raise GolowError(
                "another thread is calling this context",
                "give each thread its own context: f.context().",
            )
        try:
            known = None if named else self._exact(given)
            run = None if known is None else self._running.get(known[0])
            if known is None or run is None or self._forks != len(forks):
                return self._call(given, named, out, borrow)
            size, addresses = known
            if out is not None:
                outputs = self.outputs.given(out, size)
                require_apart(spans(given), spans(outputs))
                run(addresses, list(map(data_ptr, outputs)))
                return out
            outputs = self._lent.lend(size) if borrow else self._new(size)
            run(addresses, list(map(data_ptr, outputs)))
            return self._whole(outputs)
        finally:
            self._lock.release()

    # The long way, for all but inputs of a size that was compiled for, as they are.
    def _call(
        self, given: tuple[Any, ...], named: Mapping[str, Any], out: Any, borrow: bool
    ) -> Any:
        if not self._running:
            raise GolowError("the compiled module is closed")
        require_own_process(self._forks, "the module was compiled")
        ordered = self.inputs.ordered(given, named)
        tensors, found = self.inputs.fitting(ordered)
        size = found if found in self._running else self.inputs.size_for(found)
        if found != size:
            tensors = self.inputs.padded(tensors, size)
        if out is None:
            outputs = self._lent.lend(size) if borrow else self.outputs.new(size)
        elif found == size:
            outputs = self.outputs.given(out, size)
            require_apart(spans(tensors), spans(outputs))
        else:
            raise GolowError(
                f"out= needs a size that was compiled for, and {in_words(found)} is padded to "
                f"{in_words(size)}",
                "add it to the sizes of golow.compile.",
            )
        changes = [torch.empty_like(tensors[place]) for place in self.inputs.changed]
        self._running[size](
            [item.data_ptr() for item in tensors],
            [item.data_ptr() for item in (*outputs, *changes)],
        )
        self.inputs.write_back(ordered, changes)
        return self.outputs.filled(outputs, size, found) if out is None else out

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the running call, and block new ones meanwhile."""
        with self._lock:
            yield

    def close(self) -> None:
        """Release the memory. A later call is an error."""
        with self._lock:
            self._running = {}
            self._lent.close()
