"""Engines where there is no GPU to choose them on: a plan then has every step, its operands and its
golow kernels, and of a library's steps the library alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, cast

from golow.levels.direct.cudnn.engines import golow_attention, golow_convolution, golow_recurrence
from golow.levels.direct.cudnn.engines.first_convolution import first_engines
from golow.levels.direct.cudnn.engines.golow_recurrence import Shares
from golow.levels.direct.cudnn.engines.own_engine import OwnEngine
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.epilogue import PASS_NS, takes_activation
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.products import (
    AttentionProblem,
    Convolution,
    FirstConvolution,
)
from golow.levels.direct.cudnn.problems.recurrent_network import (
    Operand,
    Parameter,
    RecurrentNetwork,
)
from golow.levels.nvidia.known_gpus import KnownGpu
from golow.lower.operators.quantize import E4M3

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu

Operation = Convolution | Problem | AttentionProblem | FirstConvolution
# What cuBLASLt multiplies in e4m3, and with a scale for each row and column:
# https://docs.nvidia.com/cuda/cublas/#narrow-precision-data-types-usage
WITHOUT_E4M3, SCALED = ("sm_80", "sm_86", "sm_87"), "sm_90"


class UnchosenEngine:
    """Stands for whichever engine the library has. It cannot run."""

    workspace = 0

    def __init__(self, library: str) -> None:
        self.kind = self.name = library

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        """Raise RuntimeError: there is no GPU."""
        raise RuntimeError(f"no engine of {self.name} was chosen")

    def encode(self) -> bytes:
        """Return nothing to restore."""
        return b""


class UnchosenNetwork:
    """Stands for cuDNN's recurrent network: its weights side by side in PyTorch's order; reserve:
    the gates and states of all steps."""

    algorithm = "of any algorithm"
    workspace = 0

    def __init__(self, problem: RecurrentNetwork) -> None:
        self.problem = problem
        item, at, found = ITEM_BYTES[problem.dtype], 0, []
        for end in range(problem.layers * problem.sides):
            places: dict[Parameter, int] = {}
            for name, shape in problem.parameters(end // problem.sides).items():
                places[name] = at
                at += item * prod(shape)
            found.append(places)
        self.places, self.weight_bytes = tuple(found), at
        units = problem.layers * problem.sides * problem.hidden * (problem.gates + 1)
        self.reserve = item * problem.steps * problem.rows * units

    def forward(self, given: Mapping[Operand, int], workspace: int) -> None:
        """Raise RuntimeError: there is no GPU."""
        raise RuntimeError("no algorithm of cuDNN was chosen")

    backward = forward


class UnchosenEngines:
    """Stand-in for `Engines` on a GPU that is only known by its figures. times: whether it predicts
    what `Engines` measures; every engine then is as good as the GPU permits."""

    def __init__(self, gpu: KnownGpu, times: bool = False) -> None:
        self.gpu, self.times = gpu, times

    def time_of(self, operation: Convolution | Problem | FirstConvolution) -> float:
        """Return the nanoseconds that the operation needs at least, with its launch."""
        done = operation.convolution if isinstance(operation, FirstConvolution) else operation
        moving = sum(operation.operand_bytes) / self.gpu.bandwidth
        half, tf32, float32 = self.gpu.half, self.gpu.tf32, self.gpu.float32
        rate = {"quarter": 2 * half, "half": half, "tf32": tf32, "ieee": float32}
        return 1e9 * max(moving, operation.flops / rate[done.arithmetic]) + PASS_NS

    def choose(self, operation: Operation) -> OwnEngine | UnchosenEngine | None:
        """Return golow's own engine where it comes first, else a library's; None where neither
        computes it."""
        gpu = cast("Gpu", self.gpu)  # they ask for its architecture alone until they run
        if isinstance(operation, Problem):
            return UnchosenEngine("cublaslt") if self._multiplies(operation) else None
        if isinstance(operation, FirstConvolution):
            return next(first_engines(operation, gpu, 1), None)
        if isinstance(operation, AttentionProblem):
            if operation.by_library:
                return UnchosenEngine("cudnn")
            return next(golow_attention.own_attention(operation, gpu, 1), None)
        own = next(golow_convolution.own_engines(operation, gpu, 1), None)
        inside = self.times and takes_activation(operation.activation)
        if own is None and not operation.of_ranges and (operation.activation is None or inside):
            return UnchosenEngine("cudnn")
        return own

    def _multiplies(self, problem: Problem) -> bool:
        """True if cuBLASLt has the product on this GPU."""
        if problem.scaled:
            return self.gpu.architecture == SCALED
        return problem.dtype != E4M3 or self.gpu.architecture not in WITHOUT_E4M3

    def recurrent(self, problem: RecurrentNetwork) -> UnchosenNetwork:
        """Return the library's network."""
        return UnchosenNetwork(problem)

    def own_recurrence(self, problem: RecurrentNetwork) -> Shares | None:
        """Return how golow's kernel shares the layers' units, wherever there is one."""
        return golow_recurrence.takes(problem, self.gpu.multiprocessors)
