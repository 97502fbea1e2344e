"""Plans of `cudnn` without a GPU: engines that only remember what was wanted, and what holds for
every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.engines.golow_recurrence import Shares
from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.problems.recurrent_network import RecurrentNetwork
from golow.levels.direct.cudnn.steps.built_plan import Built
from golow.lower.analysis.arithmetic import step_operations
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode, Precision
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.networks_on_cpu import HostNetwork

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


class Asked:
    """Stands for an engine: it needs some workspace, and is never run."""

    kind = name = "asked"
    workspace = 1000

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        raise AssertionError("there is no GPU")

    def encode(self) -> bytes:
        return b""


class AskedEngines:
    """Remembers the operations for which engines were wanted."""

    gpu: object = None
    times = False

    def __init__(self) -> None:
        self.operations: Counter[Convolution | Problem] = Counter()
        self.networks: list[RecurrentNetwork] = []

    def choose(self, operation: Convolution | Problem) -> Asked:
        self.operations[operation] += 1
        return Asked()

    def own_recurrence(self, problem: RecurrentNetwork) -> Shares | None:
        return None  # the library is faster

    def recurrent(self, problem: RecurrentNetwork) -> HostNetwork:
        self.networks.append(problem)
        return HostNetwork(problem)


class TimedEngines(AskedEngines):
    """Engines that were timed. nanoseconds: of an operation; passed: of a pass over memory, without
    its launch."""

    times = True

    def __init__(
        self, nanoseconds: Callable[[Convolution | Problem], float], passed: float = 3000.0
    ) -> None:
        super().__init__()
        self.time_of = nanoseconds
        self.gpu = SimpleNamespace(plain_ns=lambda transferred, flops: passed, cache_bytes=1 << 30)


@cache
def lowered(model: str | nn.Module, mode: Mode, shape: tuple[int, ...]) -> Graph:
    """The graph; shape is an input's, or a resolution alone."""
    inputs = torch.randn(shape) if len(shape) > 1 else None
    size = shape[0] if inputs is None else None
    batch = 4 if inputs is None else None
    prepared = prepare(Request(model, inputs, mode=mode, batch=batch, resolution=size))
    return apply(apply(capture(prepared).graph, CLEAN_UP), passes(prepared.workload))


def built(
    model: str | nn.Module, mode: Mode, precision: Precision = "default", *shape: int
) -> tuple[Built, AskedEngines]:
    graph = lowered(model, mode, shape or (64,))
    engines = AskedEngines()
    return build_plan(graph, cast("Engines", engines), TYPES[precision], 4), engines


def assert_sound(made: Built) -> None:
    """Nothing is read before it was written, no two that live together overlap, and the arithmetic
    of every step is known."""
    plan = made.plan
    filled = {fill.tensor.buffer for fill in made.fills}
    filled |= {tensor.buffer for tensor in (*made.inputs.values(), *made.cells.values())}
    filled |= {copy.buffer for _, copy in made.copies}
    filled |= {index for index, buffer in enumerate(plan.buffers) if not buffer.bytes}
    for step in plan.steps:
        for operand in step.reads:
            assert operand.buffer in filled, f"{step.operation} reads {operand} too early"
        filled |= {operand.buffer for operand in step.writes}
        assert step_operations(step) >= 0
    for tensor in made.outputs.values():
        assert tensor.buffer in filled
    for index, buffer in enumerate(plan.buffers):
        if buffer.place != "input":
            assert buffer.offset + buffer.bytes <= plan.sizes[buffer.place], index


class Scaled(nn.Module):
    """``function`` of a weight [4, 4], a vector and the input."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.rand(4, 4))
        self.register_buffer("vector", torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.vector)
