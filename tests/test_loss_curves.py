"""A level trains the same network: its losses on real digits stay with eager's for 200 steps."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FILE = Path(__file__).parent.parent / "benchmarks" / "loss_curves.py"
STEPS, BATCHES = 200, 20


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    found = importlib.util.spec_from_file_location("loss_curves", FILE)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def curves(benchmark: ModuleType) -> dict[str, np.ndarray]:
    return benchmark.train("lenet5", ["onednn"], STEPS, BATCHES)


def test_onednn_follows_eager(benchmark: ModuleType, curves: dict[str, np.ndarray]) -> None:
    eager, found = curves["eager"], curves["onednn"]
    assert eager[-1] < 0.5 * eager[0]  # it learns, or the comparison would say nothing
    assert benchmark.distance(found, eager) <= benchmark.spread(curves)


def test_another_learning_rate_does_not_follow(
    benchmark: ModuleType, curves: dict[str, np.ndarray], tmp_path: Path
) -> None:
    steps, setting = 40, benchmark.SETTINGS["lenet5"]
    benchmark.SETTINGS["lenet5"] = setting._replace(learning_rate=1.001 * setting.learning_rate)
    bundle = benchmark.bundle("lenet5", BATCHES, 2, tmp_path / "bundle")
    other = np.array(list(benchmark.losses("onednn", bundle, steps)))
    assert benchmark.distance(other, curves["eager"][:steps]) > benchmark.spread(curves)
