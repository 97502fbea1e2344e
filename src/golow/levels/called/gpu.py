"""`cudnn` as the target of `golow.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from golow.levels.called.float32_copy import float32_copy, on_cpu
from golow.levels.called.target import Run
from golow.levels.direct.bundle_arrays import Batch, Read
from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.cudnn.planning import require_runnable
from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.torch.device import HALVES
from golow.lower.ir.graph import Graph, Pass
from golow.records.errors import GolowError
from golow.records.workload import Precision, Workload

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu
    from golow.levels.direct.cudnn.engines.engines import Engines
    from golow.levels.direct.cudnn.run.called_plan import Arena, CalledPlan
    from golow.levels.direct.cudnn.run.device_array import DeviceArray
    from golow.levels.direct.cudnn.run.shared_weights import SharedWeights

PRECISION_OF: dict[torch.dtype, Precision] = {dtype: name for name, dtype in HALVES.items()}


class OneGpu:
    """The GPU that the module is on. precision ``default`` is the half precision of a module that
    has one. Raises `GolowError` if the level is not installed."""

    level = "cudnn"
    threads = 1
    shares = False

    def __init__(self, module: nn.Module, device: torch.device, precision: Precision) -> None:
        probe = cudnn.probe()
        if not probe.available:
            raise GolowError(f"cudnn: {probe.missing}", probe.fix)
        own = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        if own not in (torch.float32, *PRECISION_OF):
            name = str(own).removeprefix("torch.")
            raise GolowError(
                f"cudnn has no {name}, which is the type of the module's weights",
                "call the module's .float(), .bfloat16() or .half().",
            )
        self.precision = PRECISION_OF.get(own, precision) if precision == "default" else precision
        self.device = torch.device("cuda", device.index or 0)
        self._chosen: Engines | None = None  # of all sizes

    @property
    def engines(self) -> Engines:
        """Engines of all sizes. Raises LookupError before the first `build`."""
        if self._chosen is None:
            raise LookupError("no plan was built")
        return self._chosen

    def passes(self, workload: Workload) -> tuple[Pass, ...]:
        """The level's passes."""
        return cudnn.passes(workload)

    def require_runnable(self, graph: Graph) -> None:
        """Raise `Unsupported` for the first node that the level cannot run."""
        require_runnable(graph)

    def captured_as(self, module: nn.Module) -> nn.Module:
        """A copy on the CPU in float32."""
        return float32_copy(module)

    def captured_with(self, sample: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The inputs for that copy."""
        return tuple(map(on_cpu, sample))

    def array(self, tensor: Tensor) -> DeviceArray | np.ndarray:
        """The tensor where it is on the GPU; a copy there of one that is elsewhere, or that kernels
        cannot read; a NumPy array of a type that no kernel has."""
        from golow.levels.direct.cudnn.run.device_array import ALIGNMENT, DeviceArray

        if type_name(tensor) not in C_TYPES:
            return _host(_real(tensor))
        there = _real(tensor).to(self.device).contiguous()
        if there.data_ptr() % ALIGNMENT:
            there = there.clone()
        passing = there.data_ptr() != tensor.data_ptr()
        if passing:
            self.wait_for_torch()
        return DeviceArray(there.data_ptr(), type_name(there), partial(_host, there), passing)

    def building(self) -> None:
        """Wait for what may still write the weights. Let torch give back memory that it keeps in
        reserve: the plan's is not torch's."""
        self.wait()
        torch.cuda.empty_cache()

    def done(self) -> None:
        """Nothing: `building` has done it, and kernels are compiled outside of PyTorch."""

    def build(
        self,
        graph: Graph,
        read: Read,
        sample: Sequence[Tensor],
        outputs: Sequence[Tensor],
        folder: Path,
        tune: bool,
    ) -> CalledPlan:
        """Build the plan of one size."""
        from golow.levels.direct.cudnn.run.called_plan import CalledPlan

        return CalledPlan(
            graph,
            read,
            self.engines_for(folder, tune),
            precision=self.precision,
            given={str(k): type_name(item) for k, item in enumerate(sample)},
            outputs=list(map(type_name, outputs)),
            example=batch_bytes("input", sample),
            tune=tune,
        )

    def engines_for(self, folder: Path, tune: bool) -> Engines:
        """The engines; the first call makes them. folder: the cache."""
        if self._chosen is None:
            self._chosen = _engines(folder / self.level, self.device.index, tune)
        return self._chosen

    def shared_weights(self) -> SharedWeights:
        """A new memory for weights."""
        from golow.levels.direct.cudnn.run.shared_weights import SharedWeights

        return SharedWeights()

    def arena(self, size: int, number: int) -> Arena:
        """A new memory for iterations."""
        from golow.levels.direct.cudnn.run.called_plan import Arena

        return Arena(size, number)

    def running(self, plan: CalledPlan, arena: Arena) -> Run:
        """The plan over a memory for iterations, on torch's current stream."""
        return plan.running(arena, self.current_stream).__call__

    @cached_property
    def current_stream(self) -> Callable[[], int]:
        """Gives torch's current stream on this GPU."""
        raw = torch._C._cuda_getCurrentRawStream  # the public one makes an object of each stream
        return partial(raw, self.device.index)

    def wait(self) -> None:
        """Wait for everything on the GPU."""
        torch.cuda.synchronize(self.device)

    def wait_for_torch(self) -> None:
        """Wait for what is on torch's current stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def step_seconds(
        self, plan: CalledPlan, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> dict[int, float]:
        """Nothing: steps of a CUDA graph are timed in golow's worker alone."""
        return {}


def _engines(home: Path, ordinal: int, tune: bool) -> Engines:
    from golow.levels.direct.cudnn.engines.engines import Engines

    return Engines(_gpu(home / "kernels", ordinal), home / "engines", tune)


@cache
def _gpu(kernels: Path, ordinal: int) -> Gpu:
    """The GPU with its streams and loaded kernels, one for all modules of the process."""
    from golow.levels.direct.cudnn.bindings.device import Gpu

    return Gpu(kernels, None, ordinal)


def _host(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = on_cpu(tensor).numpy()
    return array


def batch_bytes(kind: str, sample: Sequence[Tensor]) -> Batch:
    """The content of tensors, by kind and position."""
    return {
        (kind, str(k)): item.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        for k, item in enumerate(map(_real, sample))
    }


def _real(tensor: Tensor) -> Tensor:
    """Complex numbers as pairs, as graphs take them."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def type_name(tensor: Tensor) -> str:
    """The type of its elements, as graphs name it."""
    return str(_real(tensor).dtype).removeprefix("torch.")
