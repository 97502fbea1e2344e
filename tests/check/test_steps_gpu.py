"""Operations of a plan are judged on the GPU that computed them, by the results of a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from golow.check.rounding import FLOAT32
from golow.check.step_rule import judged
from golow.check.step_values import step_values
from golow.check.steps import placed
from golow.levels.direct.cudnn.level import passes
from golow.records.comparison import StepError
from support.direct.in_process import graph_inputs, lower
from support.direct.step_checks import level_values

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu


class Mixed(nn.Module):
    """Convolutions, whole numbers, a mask and a constant that the forward pass makes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 16)
        self.body = nn.Sequential(nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16), nn.GELU())
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = self.body(self.table(tokens).transpose(1, 2)).transpose(1, 2)
        place = torch.arange(seen.shape[1], device=seen.device)
        kept = torch.where((place % 2 == 0)[:, None], seen, torch.full_like(seen, -1.0))
        return self.head(kept.amax(1)) + torch.ones(5)


def in_float32(_: str, result: Tensor) -> Tensor:
    return result.float() if result.is_floating_point() else result


def errors_on(device: str, plant: Callable[[str, Tensor], Tensor]) -> list[StepError]:
    """The errors of all values of a training step, judged on a device."""
    torch.manual_seed(0)
    network = lower(Mixed(), torch.randint(0, 10, (4, 8)), "train", passes=passes)
    inputs = graph_inputs(network, network.graph)
    found = level_values(network.graph, inputs, in_float32)
    there = torch.device(device)
    moved = {name: placed(tensor, there) for name, tensor in inputs.items()}
    own = {name: placed(plant(name, tensor), there) for name, tensor in found.items()}
    items = step_values(network.graph, moved, lambda _, name: own.get(name))
    return [judged(item, FLOAT32, "float32") for item in items]


def test_a_gpu_judges_as_a_cpu() -> None:
    there, here = (errors_on(device, lambda _, value: value) for device in ("cuda", "cpu"))
    assert [error.value for error in there] == [error.value for error in here]
    assert max(error.share for error in there) <= 1.0
    assert [error.share for error in there] == pytest.approx([e.share for e in here], abs=1e-3)


def test_a_fault_is_found_on_a_gpu_where_it_is_on_a_cpu() -> None:
    names = [error.value for error in errors_on("cpu", lambda _, value: value)]
    for at in names[:: len(names) // 6]:

        def wrong(name: str, value: Tensor, at: str = at) -> Tensor:
            return value * 1.01 + 1 if name == at and value.is_floating_point() else value

        there, here = (errors_on(device, wrong) for device in ("cuda", "cpu"))
        assert [e.value for e in there if e.share > 1] == [e.value for e in here if e.share > 1]
