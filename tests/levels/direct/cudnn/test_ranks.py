"""`cudnn` trains in several ranks. The device, and NCCL, stand on the host; what only GPUs can show
is in test_ranks_gpu.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from golow.levels.direct.cudnn.build.branches import joins
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.shared_kernels import updates
from golow.levels.direct.cudnn.steps.built_plan import AverageCall, Call, FlatCall
from golow.lower.plan.plan import Step
from golow.records.workload import Optimizer
from golow.workload.prepare import Prepared
from support.direct.cudnn_plans import AskedEngines
from support.direct.cudnn_ranks import Lowered, RankOnHost, on_every_rank
from support.direct.gpu_on_host import HostEngines, gpu_on_host
from support.direct.in_process import Tensors
from support.direct.rank_networks import (
    assert_equal_parameters,
    assert_ranks_right,
    each_training,
    prepared,
)
from support.direct.ranks_on_host import HostRanks, RanksGpu
from support.direct.step_checks import steps_check


class Trained(NamedTuple):
    """A rank after its steps. enqueued: calls of the exchange in them."""

    rank: RankOnHost
    steps: Tensors
    parameters: Tensors
    enqueued: int


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    with gpu_on_host(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(updates, "BLOCKS", 2)  # a thousand, whose threads meet, take minutes here
        yield


def trained(lowered: Lowered, meeting: Any, **options: Any) -> Trained:
    """Two steps, and four more launches of the graph."""
    rank = RankOnHost(lowered, meeting, **options)
    found = rank.steps()
    enqueued = len(rank.ranks.exchanged)
    for step in range(4):
        rank.execution.run(step)
    return Trained(rank, found, rank.parameters(), enqueued)


def all_trained(workload: Prepared, folder: Path, **options: Any) -> list[Trained]:
    lowered = Lowered(workload)
    return on_every_rank(folder, lambda meeting: trained(lowered, meeting, **options))


@each_training
def test_gradients_are_the_means_of_all_ranks(
    network: str, optimizer: Optimizer, tmp_path: Path
) -> None:
    """Several buckets. Launches of the graph need no call of the library."""
    workload = prepared(network, optimizer)
    found = all_trained(workload, tmp_path)
    assert_ranks_right(workload, [one.steps for one in found])
    assert_equal_parameters([one.parameters for one in found])
    first, other = (one.rank.ranks.exchanged for one in found)
    assert first == other
    plan = found[0].rank.built
    buckets = sum(isinstance(call, AverageCall) for call in plan.calls)
    assert buckets > 1
    # Observed; enqueued before the capture, and in it.
    assert found[0].enqueued == len(first) == 3 * buckets


def test_an_update_follows_the_mean_of_the_next_bucket() -> None:
    """So that the ranks exchange a bucket while the next one's gradients are computed."""
    lowered = Lowered(prepared("lenet"))
    engines: Any = AskedEngines()
    built = build_plan(lowered.graph, engines, lowered.types, 1)
    means = [k for k, call in enumerate(built.calls) if isinstance(call, AverageCall)]
    made = {place: k for k in means for place, _ in built.calls[k].places}  # type: ignore[union-attr]
    waits = joins(built.calls, built.plan.steps)
    for position, call in enumerate(built.calls):
        if isinstance(call, FlatCall) and call.first in made:
            own = made[call.first]
            later = [mean for mean in means if mean > own]
            assert position > min(later, default=own), "nothing hides this exchange"
            assert any(own in found for found in waits[: position + 1])
            assert not set(waits[position]).intersection(later), "it waits for another bucket"


@pytest.mark.parametrize("fault", ["late", "skips", "sums"])
def test_faults_are_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that does not wait for its bucket; a rank that keeps its own gradients; a sum."""
    from golow.levels.direct.cudnn.run import execution

    if fault == "late":

        def no_waits(calls: Sequence[Call], steps: Sequence[Step]) -> list[list[int]]:
            is_mean = [isinstance(call, AverageCall) for call in calls]
            return [[k for k in found if not is_mean[k]] for found in joins(calls, steps)]

        monkeypatch.setattr(execution, "joins", no_waits)

    class Faulty(HostRanks):
        def average(self, array: np.ndarray) -> None:
            own = array.copy()
            super().average(array)
            if self.meeting.rank == 1 and fault != "late":
                array[...] = own if fault == "skips" else 2 * array

    found = all_trained(prepared("lenet"), tmp_path, ranks=Faulty)
    with pytest.raises(AssertionError, match="differs between ranks"):
        assert_equal_parameters([one.parameters for one in found])


@pytest.mark.parametrize("network", ["lenet", "normed"])
def test_each_operation_is_right_for_what_it_read(network: str, tmp_path: Path) -> None:
    """Updates read means of whole groups, which are there after the bucket of their last member."""
    lowered = Lowered(prepared(network))

    def checked(meeting: Any) -> Any:
        rank = RankOnHost(lowered, meeting)
        own = lowered.prepared.batches[meeting.rank]
        network = SimpleNamespace(
            prepared=lowered.prepared._replace(batches=(own,)), constants=lowered.constants
        )
        return steps_check(network, rank.execution, partial(rank.execution.run_watched, 0))  # type: ignore[arg-type]

    for found in on_every_rank(tmp_path, checked):
        assert found.count > 20
        assert not found.failed, "; ".join(item.words for item in found.wrong)


def test_the_exchange_ends_after_the_graphs(tmp_path: Path) -> None:
    """NCCL waits forever when its communicator is destroyed before them."""
    lowered = Lowered(prepared("lenet"))

    def closed(meeting: Any) -> RankOnHost:
        found = trained(lowered, meeting).rank
        with pytest.raises(AssertionError, match="NCCL waits forever for graphs"):
            found.ranks.close()
        found.execution.close()
        found.ranks.close()
        return found

    one, _ = on_every_rank(tmp_path, closed)
    with pytest.raises(AssertionError, match="an exchange that was destroyed"):
        one.execution.run(0)


def test_a_host_that_waits_among_means_is_found(tmp_path: Path) -> None:
    """On GPUs it waits for ranks that wait for what it has not enqueued."""

    class Waits(HostRanks):
        def mean(self, pieces: Sequence[tuple[int, int, str]], stream: int) -> None:
            super().mean(pieces, stream)
            self._gpu.synchronize()

    with pytest.raises(AssertionError, match="the host waits while means are under way"):
        all_trained(prepared("lenet"), tmp_path, ranks=Waits)


def test_a_plan_of_ranks_needs_them() -> None:
    """It does not go on with gradients of its own."""
    from golow.levels.direct.cudnn.run.execution import Execution

    lowered, gpu = Lowered(prepared("lenet")), RanksGpu()
    engines: Any = HostEngines(gpu)
    built = build_plan(lowered.graph, engines, lowered.types, 1)
    sources = {item.value.name: item for item in lowered.graph.inputs}

    def read(kind: str, target: str) -> np.ndarray:
        found: np.ndarray = lowered.constants[target].numpy()
        return found

    execution = Execution(built, gpu, sources, [], read)  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="there are none"):
        execution.enqueue()
