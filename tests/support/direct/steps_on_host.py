"""`golow.compile_step`, models that generate and the backend of torch.compile for a GPU, over the
device on the host: their tensors are the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from golow.compiled.dynamo import backend, planned_graph
from golow.levels.called.generation import building
from golow.levels.called.gpu import OneGpu
from golow.levels.called.training import step_building
from golow.levels.called.training.on_gpu import OnGpu
from golow.levels.called.training.wanted_step import WantedStep
from golow.levels.direct.cudnn.shared_kernels import updates
from golow.levels.direct.ranks.meeting import Meeting
from golow.records.workload import Precision
from support.direct.gpu_on_host import HostEngines, HostGpu, gpu_on_host
from support.direct.ranks_on_host import HostRanks

STREAM = 7


class HostTarget(OneGpu):
    """The GPU that is none."""

    def __init__(self, precision: Precision, gpu: HostGpu) -> None:
        self.precision = precision
        self.device = torch.device("cpu")
        self._chosen: Any = HostEngines(gpu)

    def building(self) -> None:
        """Nothing is under way."""

    wait = wait_for_torch = building

    @property
    def current_stream(self) -> Callable[[], int]:  # type: ignore[override]
        return lambda: STREAM


@contextmanager
def graphs_on_host() -> Iterator[HostGpu]:
    """Within the block the backend of torch.compile builds plans of `cudnn` for graphs on the
    CPU. Weights are inputs, as for graphs on a GPU."""
    with gpu_on_host() as gpu, pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned_graph, "target_on", lambda device: HostTarget("ieee", gpu))
        patch.setattr(backend, "_unchanged_weights", list)
        yield gpu


class OnHost(OnGpu):
    """Its ranks exchange gradients in memory that they share."""

    def exchange(self, meeting: Meeting, gpu: Any) -> Any:
        return HostRanks(meeting, gpu)


@contextmanager
def steps_on_host(kind: type[HostGpu] = HostGpu) -> Iterator[HostGpu]:
    """Within the block `golow.compile_step` builds plans of `cudnn` for modules on the CPU. kind:
    of the device."""
    with gpu_on_host(kind) as gpu, pytest.MonkeyPatch.context() as patch:

        def device(
            module: nn.Module,
            found: object,
            wanted: WantedStep,
            cache: Path,
            meeting: Meeting | None,
        ) -> OnGpu:
            precision = "ieee" if wanted.precision == "default" else wanted.precision
            target = HostTarget(precision, gpu)
            return OnHost(target, wanted.seed, cache, wanted.tune, wanted.loss_scale, meeting)

        patch.setattr(step_building, "_device", device)
        patch.setattr(updates, "BLOCKS", 2)  # a thousand, whose threads meet, take minutes here
        yield gpu


@contextmanager
def generation_on_host(precision: Precision = "ieee") -> Iterator[HostGpu]:
    """Within the block `golow.compile` with ``generation=`` builds plans of `cudnn` for modules on
    the CPU."""
    with gpu_on_host() as gpu, pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "target_for", lambda *given, **told: HostTarget(precision, gpu))
        yield gpu
