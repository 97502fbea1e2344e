"""Builds that time alternatives need the machine alone; others run beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from golow.levels.ladder import LADDER
from support.workers.bundles import network_bundle
from support.workers.precisions import in_precision

if TYPE_CHECKING:
    from golow.records.workload import Device


@pytest.mark.parametrize(
    ("device", "name", "variant", "measures"),
    [
        ("cpu", "onednn", "called", True),
        ("cuda", "cudnn", "called", False),
        ("cuda", "cudnn", "called-autotune", True),
    ],
)
def test_a_build_that_times_nothing_runs_beside_others(
    tmp_path: Path, device: Device, name: str, variant: str, measures: bool
) -> None:
    bundle = in_precision(network_bundle(tmp_path / "bundle", "infer"), "ieee", device)
    [level] = [level for level in LADDER if level.name == name]
    launch = level.prepare(bundle, variant, tmp_path / "cache")
    assert launch.build_measures is measures
