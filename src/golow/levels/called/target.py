"""A direct level as `golow.compile` uses it: what runs a module's plan on its device."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from golow.levels.direct.bundle_arrays import Read
from golow.lower.ir.graph import Graph, Pass
from golow.lower.plan.plan import Plan
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Precision, Workload
from golow.workload.known_causes import is_of_program, require_code_and_values

Key = TypeVar("Key", bound=Hashable)
Run = Callable[[Sequence[int], Sequence[int]], None]
"""Runs an iteration on inputs at these addresses, and writes the outputs to those."""


class TargetPlan(Protocol):
    """A plan with its weights, as `CalledPlan` of either level."""

    @property
    def plan(self) -> Plan:
        """Its steps and memory."""

    def share(self, memory: Any) -> None:
        """Keep the weights in a memory of `Target.shared_weights`."""

    def load(self, read: Read) -> None:
        """Take other weights, in the memory of the present ones."""


class SharedMemory(Protocol):
    """The memory of the weights of all sizes. bytes: of all that it holds."""

    bytes: int

    def close(self) -> None:
        """Release it."""


class Target(Protocol):
    """level: its name. device: of inputs and outputs. threads: of the CPU, in a call. shares:
    whether plans read the module's own weights."""

    level: str
    device: torch.device
    threads: int
    precision: Precision
    shares: bool

    def passes(self, workload: Workload) -> tuple[Pass, ...]:
        """The level's passes."""

    def require_runnable(self, graph: Graph) -> None:
        """Raise `Unsupported` for the first node that the level cannot run."""

    def captured_as(self, module: nn.Module) -> nn.Module:
        """The module that is captured: on the CPU, in float32."""

    def captured_with(self, sample: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The inputs for that module."""

    def array(self, tensor: Tensor) -> Any:
        """A weight as plans of this level read it."""

    def building(self) -> None:
        """Prepare this thread for building plans and loading weights."""

    def done(self) -> None:
        """Give back to the system what building needed for a while."""

    def build(
        self,
        graph: Graph,
        read: Read,
        sample: Sequence[Tensor],
        outputs: Sequence[Tensor],
        folder: Path,
        tune: bool,
    ) -> TargetPlan:
        """Build the plan of one size. sample: inputs; outputs: tensors like the outputs. folder:
        the cache."""

    def shared_weights(self) -> SharedMemory:
        """A new memory for weights."""

    def arena(self, size: int, number: int) -> Any:
        """A new memory of that many bytes for iterations of this many plans."""

    def running(self, plan: Any, arena: Any) -> Run:
        """The plan over a memory for iterations."""

    def step_seconds(
        self, plan: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> dict[int, float]:
        """Seconds of each step of an iteration, by its position in the plan; empty if the level
        times no steps here."""


def require_inferring(module: nn.Module) -> None:
    """Raise `GolowError` for what is not a module, and for one in training mode."""
    if not isinstance(module, nn.Module):
        raise GolowError(
            f"the model is {type(module).__name__}, not a torch.nn.Module",
            "build the module first, and call its .eval().",
        )
    require_code_and_values(module, type(module).__name__)
    training = [name or "the module" for name, part in module.named_modules() if part.training]
    if training:
        raise GolowError(
            f"{training[0]} is in training mode, and a compiled module only runs inference",
            "compile a copy: copy.deepcopy(module).eval(); an exported program's own module has no "
            ".eval()."
            if is_of_program(module)
            else "call the module's .eval() first.",
        )


def device_of(module: nn.Module, example: Any) -> torch.device:
    """The one device of the module's weights, or of the first input if it has none. Raises
    `GolowError` for a module that is spread over several."""
    found: Mapping[torch.device, str] = {
        tensor.device: name
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise GolowError(
            f"{first} is on {one} and {second} on {other}; a compiled module has one device",
            f"call the module's .to({str(one)!r}).",
        )
    return next(iter(found), _device_of_first(example))


def _device_of_first(example: Any) -> torch.device:
    tensors = example.values() if isinstance(example, Mapping) else example
    first = next(iter(tensors), None)
    return first.device if isinstance(first, Tensor) else torch.device("cpu")


@contextmanager
def roomy() -> Iterator[None]:
    """Turn running out of memory into a `GolowError`."""
    try:
        yield
    except MemoryError as error:
        raise GolowError(
            f"there is not enough memory on the GPU: {error}" if str(error) else "out of memory",
            "compile for fewer or smaller sizes, or free other memory.",
        ) from error


def over_one_arena(target: Target, plans: Mapping[Key, TargetPlan]) -> dict[Key, Run]:
    """The plans over one memory for iterations, as large as the largest needs."""
    with roomy():
        arena = target.arena(largest_arena(plans.values()), len(plans))
        return {key: target.running(plan, arena) for key, plan in plans.items()}


def largest_arena(plans: Iterable[TargetPlan]) -> int:
    """Bytes that an iteration of any of the plans needs."""
    return max(plan.plan.sizes["arena"] for plan in plans)


@contextmanager
def explained(level: str, draws: bool = False) -> Iterator[None]:
    """Turn what the level does not support into an error that names the levels to ask. draws: the
    module draws random numbers."""
    try:
        yield
    except Unsupported as error:
        raise (_cannot_draw if draws else cannot_run)(level, error) from error


def _cannot_draw(level: str, error: Unsupported) -> GolowError:
    return GolowError(
        f"{level} cannot run it: it draws random numbers, and a plan draws none: {error.words}",
        'make the numbers an input of the module; level="eager" draws them itself.',
    )


def cannot_run(level: str, error: Unsupported) -> GolowError:
    """The error for a module that the level does not support: why, and which levels to ask."""
    return GolowError(
        f"{level} cannot run it: {error.words}",
        "golow levels --support MODEL lists the levels that run it.",
        python_hint="golow.support(module, inputs).table() shows the levels that run it.",
    )
