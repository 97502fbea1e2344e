"""Training on two GPUs through NCCL: the levels inside PyTorch match, and are timed on devices of
their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import golow
from golow.records.errors import GolowError
from golow.records.workload import Precision
from support.workers.bundles import NETWORKS, SGD

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu
LEVELS = ["ddp", "ddp:compile", "fsdp"]
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs")


@needs_two
@pytest.mark.parametrize("precision", ["ieee", "bf16"])
def test_levels_of_two_gpus_match(precision: Precision, tmp_path: Path) -> None:
    result = golow.compare(
        f"{NETWORKS}:Network",
        mode="train",
        device="cuda",
        precision=precision,
        ranks=2,
        batch=8,
        input_shape=(3, 16, 16),
        optimizer=SGD,
        levels=LEVELS,
        time_limit=5,
        cache=tmp_path,
        quiet=True,
    )
    for name in LEVELS:
        run = result.run(name)
        assert run.check.verdict == "match", f"{name}: {run.check.words}\n{run.log}"
        assert run.time is not None
        assert all(len(block.rank_ns) == 2 for block in run.blocks)
        assert run.blocks[0].device_ns == max(run.blocks[0].rank_ns, key=sum)


@needs_two
def test_dropout_on_two_gpus_is_each_ranks_own(tmp_path: Path) -> None:
    from support.workers.ranked_bundles import Small

    result = golow.compare(
        Small(dropout=0.5),
        torch.randn(6, 12),
        mode="train",
        targets=torch.arange(6) % 10,
        loss="cross_entropy",
        device="cuda",
        ranks=2,
        levels=["ddp", "fsdp"],
        time_limit=3,
        cache=tmp_path,
        quiet=True,
    )
    assert [run.check.verdict for run in result.comparison.runs] == ["match", "match"]


def test_more_gpus_than_there_are_are_refused() -> None:
    count = torch.cuda.device_count() + 1
    with pytest.raises(GolowError, match="ranks need a GPU each"):
        golow.compare("lenet5", mode="train", device="cuda", ranks=count, quiet=True)
