"""The plant of golow's own selftest as a process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from golow.records.errors import Unsupported
from golow.worker.client import Worker
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request


def test_the_plant_runs_without_a_framework(tmp_path: Path) -> None:
    """What costs a second to start would hide what is planted in it."""
    prepared = prepare(Request(nn.Linear(8, 8, bias=False), torch.randn(4, 8)))
    bundle, _ = write_bundle(prepared, tmp_path / "bundle")
    command = (sys.executable, "-m", "golow.worker.plant", "--products", "0")
    with Worker("plant", command, threads=1) as worker:
        worker.load(bundle.folder)
        worker.time(10, 0)
        assert "libtorch" not in Path(f"/proc/{worker.pid}/maps").read_text()


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_the_plant_serves_its_own_workload_only(tmp_path: Path, mode: str) -> None:
    module = nn.Linear(8, 8, bias=mode == "infer")
    prepared = prepare(Request(module, torch.randn(4, 8), mode=mode))  # type: ignore[arg-type]
    bundle, _ = write_bundle(prepared, tmp_path / "bundle")
    command = (sys.executable, "-m", "golow.worker.plant")
    with (
        Worker("plant", command, threads=1) as worker,
        pytest.raises(Unsupported, match="only x W"),
    ):
        worker.load(bundle.folder)
