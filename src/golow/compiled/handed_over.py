"""A module at a level that is not a direct one, as a callable in the caller's process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from torch import Tensor

from golow.compiled.own_outputs import own_output
from golow.compiled.surroundings import as_in_a_worker
from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.forks import forks, require_own_process
from golow.levels.called.uncopied import Uncopied
from golow.records.errors import GolowError
from golow.records.workload import Workload

Run = Callable[[tuple[Tensor, ...]], Any]


class Built(NamedTuple):
    """Result of building a level: a function from inputs to the module's output, and the object
    that it calls, of PyTorch or of the runtime. others: functions over the same session that may
    run at the same time."""

    run: Run
    called: Any
    others: tuple[Run, ...] = ()


class HandedOver(Uncopied):
    """A module at a level, called as golow's worker calls it: without gradients, with the threads
    and the precision of the comparison.

    Call it as the module: tensors in, tensors out. level: its name. called: the object of PyTorch
    (the module, or the result of torch.compile or torch.jit), or the session of the runtime. It has
    separate weights: later changes to the module's weights do not affect it.
    """

    def __init__(self, level: str, inputs: CallInputs, workload: Workload, built: Built) -> None:
        self.level, self.inputs, self.called = level, inputs, built.called
        self._workload, self._built = workload, built
        self._run: Run | None = built.run
        self._lock, self._forks = threading.Lock(), len(forks)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Run the module on its inputs and return its outputs, in memory that nothing else uses.
        Raises `GolowError` for inputs that do not fit."""
        tensors = self._fitting(given, named)
        if not self._lock.acquire(blocking=False):
            raise GolowError(
                "another thread is calling this module", "call golow.compile once for each thread."
            )
        try:
            if self._run is None:
                raise GolowError("the compiled module is closed")
            require_own_process(self._forks, "the module was compiled")
            with as_in_a_worker(self._workload):
                return own_output(self._run, tensors)
        finally:
            self._lock.release()

    def _fitting(self, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, ...]:
        ordered = self.inputs.ordered(given, named)
        try:
            return tuple(self.inputs.fitting(ordered)[0])
        except GolowError as error:
            if "batch=" not in error.hint:
                raise
            hint = "compile the module again for other shapes."
            raise GolowError(error.message, hint) from None

    def for_inputs(self, inputs: CallInputs) -> HandedOver:
        """Return the same object for other inputs, such as another batch size, if the level takes
        them. Another thread may call it."""
        return HandedOver(self.level, inputs, self._workload, self._built)

    @property
    def contexts(self) -> list[HandedOver]:
        """This object, and those over the same session that other threads may call at the same
        time."""
        others = [Built(run, self.called) for run in self._built.others]
        made = [HandedOver(self.level, self.inputs, self._workload, one) for one in others]
        return [self, *made]

    def close(self) -> None:
        """Release all memory. A later call is an error."""
        with self._lock:
            self._run = self.called = None
            self._built = Built(_closed, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<module at the level {self.level}>"


def _closed(inputs: tuple[Tensor, ...]) -> Any:
    raise GolowError("the compiled module is closed")
