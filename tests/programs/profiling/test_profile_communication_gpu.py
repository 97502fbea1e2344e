"""Communication of two GPUs, in the traces of torch.profiler and of CUPTI."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import golow
from golow.programs.profiling.communication import DIRECT
from support.workers.bundles import NETWORKS

if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("there are no two GPUs", allow_module_level=True)

pytestmark = pytest.mark.gpu


def test_kernels_of_nccl_are_the_communication_of_a_step(tmp_path: Path) -> None:
    result = golow.profile(
        f"{NETWORKS}:Network",
        mode="train",
        device="cuda",
        ranks=2,
        batch=8,
        input_shape=(3, 16, 16),
        levels=["ddp", "cudnn"],
        time_limit=3,
        cache=tmp_path,
        quiet=True,
    )
    for level in result.profiles[0].levels:
        assert level.missing == "", level.missing
        found = level.communication
        assert found is not None, level.level
        assert len(found.ranks) == 2
        names = {one.name.lower() for one in found.collectives}
        assert all("nccl" in name or name == DIRECT for name in names)
        for rank in found.ranks:
            assert 0 < rank.exposed <= rank.communication
