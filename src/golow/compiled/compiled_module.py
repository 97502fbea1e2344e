"""A module as a callable over the plan of a direct level."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from golow.compiled.call_inputs import CallInputs, is_plain
from golow.compiled.checking import Checked, checked
from golow.compiled.one_size import OneSize
from golow.compiled.target import Run, SharedMemory, Target, TargetPlan, roomy
from golow.lower.capture.module_outputs import Structure, flattened
from golow.lower.plan.listing import table_lines
from golow.records.errors import GolowError

_forks: list[None] = []
"""One for each fork between the first process and this one."""
os.register_at_fork(after_in_child=lambda: _forks.append(None))


class Outputs:
    """The outputs of the module: its structure, and each tensor's shape at each size."""

    def __init__(
        self, structure: Structure, forms: Mapping[int, Sequence[Tensor]], device: torch.device
    ) -> None:
        """forms: for each size, tensors like the outputs; their content does not matter."""
        self._structure, self._device = structure, device
        self._is_tensor = structure.is_tensor
        self._forms = {
            size: [(tuple(item.shape), item.dtype) for item in items]
            for size, items in forms.items()
        }

    def new(self, size: int) -> list[Tensor]:
        """Memory for the outputs at that size."""
        device = self._device
        return [
            torch.empty(shape, dtype=dtype, device=device) for shape, dtype in self._forms[size]
        ]

    def given(self, out: Any, size: int) -> list[Tensor]:
        """The tensors of the caller's own memory. Raises `GolowError` for those that do not fit."""
        leaves, structure = flattened(out)
        forms = self._forms[size]
        if structure.tree != self._structure.tree or len(leaves) != len(forms):
            raise GolowError("out has another structure than the module's output")
        for place, (leaf, (shape, dtype)) in enumerate(zip(leaves, forms, strict=True)):
            fits = isinstance(leaf, Tensor) and tuple(leaf.shape) == shape and leaf.dtype == dtype
            if not fits or leaf.device != self._device or not is_plain(leaf):
                where = "the CPU" if self._device.type == "cpu" else str(self._device)
                raise GolowError(
                    f"output {place} of out must be a row-major tensor on {where}, "
                    f"{'x'.join(map(str, shape))} of {str(dtype).removeprefix('torch.')}"
                )
        return leaves

    def filled(self, tensors: Sequence[Tensor], size: int, rows: int) -> Any:
        """The module's output with these tensors, without the rows of padding."""
        if rows != size:
            tensors = [item[: item.shape[0] * rows // size] for item in tensors]
        if self._is_tensor:
            return tensors[0]
        return self._structure.filled(tensors)


class Context:
    """One memory for iterations over the weights of a compiled module. One call may run at a time;
    calls of several contexts may run at once, in several threads."""

    def __init__(self, compiled: CompiledModule) -> None:
        self._lock = threading.Lock()
        self._running = _over_one_arena(compiled.target, compiled.plans)
        self._sizes = compiled.inputs.sizes
        self._inputs, self._outputs = compiled.inputs, compiled.outputs
        self._forks = len(_forks)

    def __call__(self, *given: Any, out: Any = None, **named: Any) -> Any:
        """Run the module on inputs as it takes them, and return what it returns.

        out: memory for the outputs, in the structure of the module's output; nothing is allocated
        then. The batch must be one of the sizes. Raises `GolowError` for inputs that do not fit.
        """
        if not self._lock.acquire(blocking=False):
            raise GolowError(
                "another thread is calling this context", "give each thread its own: f.context()."
            )
        try:
            return self._call(given, named, out)
        finally:
            self._lock.release()

    def _call(self, given: tuple[Any, ...], named: Mapping[str, Any], out: Any) -> Any:
        if not self._running:
            raise GolowError("the compiled module is closed")
        if self._forks != len(_forks):
            raise GolowError(
                "the module was compiled in the process that this one was forked from",
                "compile it after the fork: threads do not survive one.",
            )
        tensors, rows = self._inputs.fitting(self._inputs.ordered(given, named))
        size = rows if rows in self._running else self._next_size(rows)
        if rows != size:
            tensors = self._inputs.padded(tensors, size)
        if out is None:
            outputs = self._outputs.new(size)
        elif rows == size:
            outputs = self._outputs.given(out, size)
        else:
            raise GolowError(
                f"out= needs a batch that was compiled for, and {rows} is padded to {size}",
                f"add {rows} to batch=[...].",
            )
        self._running[size](
            [item.data_ptr() for item in tensors], [item.data_ptr() for item in outputs]
        )
        return self._outputs.filled(outputs, size, rows) if out is None else out

    def _next_size(self, rows: int) -> int:
        return next(size for size in self._sizes if size >= rows)

    def close(self) -> None:
        """Give the memory back. A later call is an error."""
        with self._lock:
            self._running = {}


def _over_one_arena(target: Target, plans: Mapping[int, TargetPlan]) -> dict[int, Run]:
    size = max(plan.plan.sizes["arena"] for plan in plans.values())
    with roomy():
        arena = target.arena(size, len(plans))
        return {batch: target.running(plan, arena) for batch, plan in plans.items()}


class CompiledModule:
    """A module whose plan runs in this process, with weights of its own.

    Call it as the module: tensors in, tensors out. A weight that is changed in the module
    afterwards does not change it; `load_state_dict` does.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: CallInputs,
        outputs: Outputs,
        sizes: Mapping[int, OneSize],
        plans: Mapping[int, TargetPlan],
        weights: SharedMemory,
        target: Target,
    ) -> None:
        self.inputs, self.outputs, self.target = inputs, outputs, target
        self.plans = dict(plans)
        self._module, self._sizes, self._weights = module, sizes, weights
        self._state: Mapping[str, Tensor] = module.state_dict()
        self._shapes = {name: item.shape for name, item in self._state.items()}
        self._contexts = [Context(self)]
        self._call: Callable[..., Any] = self._contexts[0]

    def __call__(self, *given: Any, out: Any = None, **named: Any) -> Any:
        """Run the module, as `Context.__call__` does."""
        return self._call(*given, out=out, **named)

    def context(self) -> Context:
        """Return a second memory for iterations, over the same weights, for another thread."""
        self._require_open()
        self._contexts.append(Context(self))
        return self._contexts[-1]

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take other weights, in the memory of the present ones; nothing is built again. Wait until
        no context is being called. Raises `GolowError` for weights of another module, before
        anything changes."""
        self._require_open()
        missing = [name for name in self._shapes if name not in state]
        unknown = [name for name in state if name not in self._shapes]
        if missing or unknown:
            what = f"{missing[0]} is missing" if missing else f"{unknown[0]} is not the module's"
            raise GolowError(f"the state dict is another module's: {what}")
        for name, shape in self._shapes.items():
            if state[name].shape != shape:
                found, wanted = list(state[name].shape), list(shape)
                raise GolowError(f"{name} is {found} in the state dict, the module's is {wanted}")
        self.target.building()
        held = [context._lock for context in self._contexts]
        for lock in held:
            lock.acquire()
        try:
            for size, plan in self.plans.items():
                plan.load(self._sizes[size].reading(state))
            self._state = dict(state)
        finally:
            for lock in held:
                lock.release()

    def check(self, *given: Any, **named: Any) -> Checked:
        """Compare what it gives on these inputs with the module in float64, by golow's rule: no
        farther from it than rounding explains. The weights are those that were loaded last."""
        ordered = self.inputs.ordered(given, named)
        tensors, _ = self.inputs.fitting(ordered)
        found = self._call(*given, **named)
        return checked(self._module, self._state, found, tensors, self.target)

    def plan(self, batch: int | None = None) -> str:
        """Return the steps of the plan, a line each; batch: of which size, by default the
        largest. Raises `GolowError` for a size that it was not compiled for."""
        self._require_open()
        size = self.inputs.sizes[-1] if batch is None else batch
        if size not in self.plans:
            known = ", ".join(map(str, self.inputs.sizes))
            raise GolowError(f"there is no plan for a batch of {size}", f"sizes are {known}.")
        return "\n".join(table_lines(self.plans[size].plan))

    def memory(self) -> dict[str, int]:
        """Return bytes: ``weights``, once for all sizes and contexts, and ``iteration``, which each
        context has once."""
        arenas = [plan.plan.sizes["arena"] for plan in self.plans.values()]
        return {"weights": self._weights.bytes, "iteration": max(arenas, default=0)}

    def close(self) -> None:
        """Give all memory back. A later call is an error."""
        for context in self._contexts:
            context.close()
        self.plans = {}
        self._weights.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if not self.plans:
            raise GolowError("the compiled module is closed")
