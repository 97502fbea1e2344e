"""`cudnn` trains in several ranks. The device, and NCCL, stand on the host; what only GPUs can show
is in test_ranks_gpu.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golow.levels.direct.cudnn.shared_kernels import updates
from golow.levels.direct.cudnn.steps.built_plan import AverageCall, Built, FlatCall
from golow.records.workload import Optimizer
from support.direct.cudnn_ranks import Lowered, RankOnHost, on_every_rank
from support.direct.gpu_on_host import gpu_on_host
from support.direct.rank_networks import (
    CLIPPED,
    NETWORKS,
    SGD,
    assert_equal_parameters,
    assert_ranks_right,
    prepared,
)


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    with gpu_on_host(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(updates, "BLOCKS", 2)  # a thousand, whose threads meet, take minutes here
        yield


@pytest.mark.parametrize("optimizer", [SGD, CLIPPED], ids=lambda found: found.name)
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_are_the_means_of_all_ranks(
    network: str, optimizer: Optimizer, tmp_path: Path
) -> None:
    """As one graph, too, after which parameters stay equal."""
    workload = prepared(network, optimizer)
    lowered = Lowered(workload)

    def trained(meeting: Any) -> Any:
        rank = RankOnHost(lowered, meeting)
        found = rank.steps()
        for step in range(3):
            rank.execution.run(step)
        return found, rank.parameters(), rank.ranks.exchanged

    found = on_every_rank(tmp_path, trained)
    assert_ranks_right(workload, [steps for steps, _, _ in found])
    assert_equal_parameters([parameters for _, parameters, _ in found])
    assert found[0][2] == found[1][2]
