"""Plans of a training step in this process: in any layouts, they share one state."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from golow.levels.direct.onednn.level import probe
from golow.records.workload import KEPT, Optimizer
from golow.storage.cache import write_sealed
from support.direct.in_process import Network
from support.direct.training_steps import batches, network

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.planning import arranged
from golow.levels.direct.onednn.run import tuning
from golow.levels.direct.onednn.run.training_plan import TrainingPlan, TrainingPlans
from support.direct.onednn_in_process import lower

X, Y = (item.numpy() for item in batches(1)[0])
LAYOUTS: tuple[tuning.LayoutName, ...] = ("channels_last", "blocked")


class Together:
    """A plan in each of some layouts over one state, which holds the network's weights."""

    def __init__(self, lowered: Network, folder: Path, *layouts: tuning.LayoutName) -> None:
        self.plans = TrainingPlans(folder / "kernels", seed=0)
        self.each = [self._add(lowered, folder / layout, layout) for layout in layouts]
        weights = lowered.prepared.module.state_dict()
        for kind, target in self.plans.state.keys("parameter", "buffer"):
            self.plans.state.write((kind, target), weights[target].numpy())
        self.plans.state.set_rate(0.02)

    def _add(self, lowered: Network, folder: Path, layout: tuning.LayoutName) -> TrainingPlan:
        folder.mkdir(exist_ok=True)
        places = tuning.convolutions(arranged(lowered.graph, True))
        chosen = tuning.Layouts(positions=dict.fromkeys(places, layout))
        write_sealed(folder / tuning.LAYOUTS_FILE, msgspec.json.encode(chosen))

        def read(kind: str, target: str) -> np.ndarray:
            return lowered.constants[target].numpy()

        return self.plans.add(lowered.graph, read, folder, {}, tune=False)

    def run(self, steps: int) -> None:
        """So many steps, by the plans in turn."""
        for place in range(steps):
            self.each[place % len(self.each)]([X.ctypes.data], [Y.ctypes.data])

    def state(self) -> dict[tuple[str, str], np.ndarray]:
        """What there is after them."""
        state = self.plans.state
        return {key: state.read(key) for key in state.keys("parameter", "buffer", *KEPT)}


@pytest.mark.slow
def test_plans_in_different_layouts_share_one_state(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.Tanh(), nn.Conv2d(16, 32, 3, bias=False),
        nn.BatchNorm2d(32), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 5),
    )  # fmt: skip
    optimizer = Optimizer("adamw", learning_rate=0.02)
    lowered = lower(module, batches(1)[0][0], "train", optimizer)
    alone = [Together(lowered, tmp_path, layout) for layout in LAYOUTS]
    kept = [{key: str(it) for key, it in one.plans.state.layouts.items()} for one in alone]
    assert kept[0] != kept[1]  # otherwise this test is about nothing
    both = Together(lowered, tmp_path, *LAYOUTS)
    assert both.plans.state.bytes == alone[0].plans.state.bytes
    for one in (*alone, both):
        one.run(6)
    found = both.state()
    assert found["steps", "steps"] == 6
    for one in alone:
        for key, wanted in one.state().items():
            distance, size = np.linalg.norm(found[key] - wanted), np.linalg.norm(wanted)
            assert distance <= 1e-3 * size, key


@pytest.mark.slow
def test_what_is_cleared_is_zero_and_the_rest_stays(tmp_path: Path) -> None:
    lowered = lower(network(), batches(1)[0][0], "train")
    one = Together(lowered, tmp_path, "channels_last")
    one.run(2)
    before = one.state()
    one.plans.state.clear(["momentum"])
    for key, array in one.state().items():
        assert np.array_equal(array, before[key]) != (key[0] == "momentum")
        assert key[0] != "momentum" or not array.any()
