"""Plans of `cudnn` for several ranks, on the host: each rank is a thread, with a device of its own.
Kernels of one run at a time; what the ranks exchange goes through memory that they share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.steps.built_plan import Built
from golow.levels.direct.ranks.meeting import FolderMeeting
from golow.lower.fuse.gradient_buckets import average_gradients
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, Pass
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Precision, Workload
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared
from support.direct.gpu_on_host import HostEngines
from support.direct.in_process import Tensors, clipped
from support.direct.rank_networks import RANKS, STEPS
from support.direct.ranks_on_host import Exchange, HostRanks, RanksGpu

SMALL = 2048
"""Bytes from which on a bucket is full in tests, so that small networks have several."""
ONE_AT_A_TIME = threading.Lock()


class ThreadGpu(RanksGpu):
    """A device of one thread. What `cuda_host.cpp` runs has one state for all."""

    def enqueue(self, do: Callable[[Sequence[int]], None], *addresses: int) -> None:
        super().enqueue(do if isinstance(do, Exchange) else _alone(do), *addresses)


def _alone(do: Callable[[Sequence[int]], None]) -> Callable[[Sequence[int]], None]:
    def done(addresses: Sequence[int]) -> None:
        with ONE_AT_A_TIME:
            do(addresses)

    return done


class Lowered:
    """A workload of several ranks as the level gets it."""

    def __init__(
        self, prepared: Prepared, precision: Precision = "ieee", bucket_bytes: int = SMALL
    ) -> None:
        captured = capture(prepared)
        workload = msgspec.structs.replace(prepared.workload, precision=precision)
        clean = apply(captured.graph, CLEAN_UP)
        self.graph: Graph = apply(clean, small_buckets(workload, bucket_bytes))
        self.prepared, self.constants, self.types = prepared, captured.constants, TYPES[precision]


def small_buckets(workload: Workload, bucket_bytes: int) -> tuple[Pass, ...]:
    """The level's passes, with buckets of that size."""

    def averaged(graph: Graph) -> Graph:
        return average_gradients(graph, workload.ranks, bucket_bytes, bucket_bytes)

    found = passes(workload)
    assert any(run.__name__ == "average_gradients" for run in found)
    return tuple(averaged if run.__name__ == "average_gradients" else run for run in found)


class RankOnHost:
    """One rank's plan, with the bundle's weights. ranks: its end of the exchange."""

    def __init__(
        self,
        lowered: Lowered,
        meeting: FolderMeeting,
        ranks: Callable[[FolderMeeting, RanksGpu], HostRanks] = HostRanks,
    ) -> None:
        from golow.levels.direct.cudnn.run.execution import Execution

        self.gpu, self._lowered = ThreadGpu(), lowered
        self.ranks = ranks(meeting, self.gpu)
        prepared = lowered.prepared
        self._state = {n: t.detach().numpy() for n, t in prepared.module.state_dict().items()}
        batches = prepared.batches[meeting.rank :: RANKS]
        arrays: list[Any] = [
            {
                (kind, str(k)): tensor.contiguous().numpy()
                for kind, tensors in (("input", batch.inputs), ("target", batch.targets))
                for k, tensor in enumerate(tensors)
            }
            for batch in batches
        ]
        engines: Any = HostEngines(self.gpu)
        self.built: Built = build_plan(lowered.graph, engines, lowered.types, len(batches))
        sources = {item.value.name: item for item in lowered.graph.inputs}
        self.execution = Execution(
            self.built, self.gpu, sources, arrays, self._weight, ranks=self.ranks
        )  # type: ignore[arg-type]
        rate = prepared.workload.optimizer.learning_rate
        for (kind, target), tensor in self.built.inputs.items():
            if kind == "learning_rate":
                self.execution.write(tensor, np.array(rate, np.float32))
            elif kind in ("parameter", "buffer"):
                self.execution.write(tensor, self._weight(kind, target))
        self.execution.renew_copies()

    def _weight(self, kind: str, target: str) -> np.ndarray:
        if kind == "constant":
            found: np.ndarray = self._lowered.constants[target].detach().numpy()
            return found
        return self._state[target]

    def steps(self) -> Tensors:
        """The results of `STEPS` steps: the first step by step, the others as one graph."""
        found: Tensors = {}
        for step in range(STEPS):
            outputs = self.built.outputs
            if step == 0:
                read = self.execution.run_observed(step, outputs)
            else:
                self.execution.run(step)
                kept = {k: t for k, t in outputs.items() if k[0] != "gradient"}
                read = {key: self.execution.read(tensor) for key, tensor in kept.items()}
            own = {"/".join(key): array for key, array in read.items()}
            found |= {f"{step}/{name}": array for name, array in clipped(own).items()}
        return found

    def parameters(self) -> Tensors:
        """All parameters as they are."""
        return {
            f"0/parameter/{target}": self.execution.read(tensor)
            for (kind, target), tensor in self.built.inputs.items()
            if kind == "parameter"
        }


def on_every_rank(folder: Path, work: Callable[[FolderMeeting], Any]) -> list[Any]:
    """What each rank's thread returns."""

    def of_rank(rank: int) -> Any:
        return work(FolderMeeting(folder, rank, RANKS, patience=60))

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(of_rank, range(RANKS)))
