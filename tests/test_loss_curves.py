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


def test_onednn_follows_eager(benchmark: ModuleType) -> None:
    curves = benchmark.train("lenet5", ["onednn"], STEPS, BATCHES)
    eager, found = curves["eager"], curves["onednn"]
    assert eager[-1] < 0.5 * eager[0]  # it learns, or the comparison would say nothing
    assert benchmark.distance(found, eager) <= benchmark.spread(curves)


def test_another_learning_rate_does_not_follow(benchmark: ModuleType) -> None:
    curves = benchmark.train("lenet5", [], 60, BATCHES)
    settings = benchmark.SETTINGS
    settings["lenet5"] = settings["lenet5"]._replace(learning_rate=0.0101)
    other = benchmark.train("lenet5", [], 60, BATCHES)["eager"]
    assert np.isfinite(other).all()
    assert benchmark.distance(other, curves["eager"]) > benchmark.spread(curves)
