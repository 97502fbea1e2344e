"""A load test on a GPU: samples are copied there and back within each request."""

from __future__ import annotations

import pytest
import torch

import golow
from golow.levels.direct.cudnn.level import probe

if not torch.cuda.is_available() or not probe().available:
    pytest.skip(probe().missing or "torch sees no GPU", allow_module_level=True)

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.parametrize("precision", ["default", "bf16"])
def test_levels_are_proved_and_loaded_on_a_gpu(precision: str) -> None:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen: pip install golow[load]")
    found = golow.load_test(
        "mlp",
        levels=["eager", "direct"],
        scenarios=["offline", "server"],
        rates=[100],
        latency=1.0,
        percentile=90,
        max_batch=4,
        contexts=2,
        seconds=2.0,
        repeats=1,
        device="cuda",
        precision=precision,  # type: ignore[arg-type]
        quiet=True,
    ).test
    assert [level.level for level in found.levels] == ["eager", "cudnn"]
    for level in found.levels:
        assert level.check.verdict == "match", level.check.reason
        assert not level.failed, [run.reason for run in level.runs]
        assert any(run.joules for run in level.runs) or found.energy_missing
