"""Each operator alone at `paddle`, with arguments drawn from all that is legal, against float64:
its value and its gradient, in the dynamic graph and in a static one."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import nn

from golow.levels.traced.paddle import level as level
from golow.levels.traced.paddle.level import probe
from support.examples import examples
from support.graphs.drawn_operators import FAMILIES
from support.models import optimizers

if not probe().available:
    pytest.skip("PaddlePaddle is not installed", allow_module_level=True)

from golow.levels.traced.paddle.execution import Execution
from golow.records.workload import Optimizer
from support.direct.in_process import assert_right
from support.direct.source_in_process import compute, lower

kinds = pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])


@kinds
@pytest.mark.parametrize("family", FAMILIES)
@examples(3, same=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data(), seed=st.integers(0, 99))
def test_an_operator_alone_is_right(
    family: str, static: bool, data: st.DataObject, seed: int
) -> None:
    alone = data.draw(FAMILIES[family])
    torch.manual_seed(seed)
    network = lower(alone.module(), torch.randn(alone.shape), "train", loss="mse_loss")
    assert not [node.op for node in network.graph.nodes if not node.op.startswith("golow.")]
    assert_right(network, compute(network, level.source, partial(Execution, static=static)))


@kinds
@pytest.mark.parametrize("optimizer", optimizers.ALL, ids=repr)
def test_every_update_is_right(optimizer: Optimizer, static: bool) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    network = lower(module, torch.randn(6, 5), "train", optimizer)
    assert_right(network, compute(network, level.source, partial(Execution, static=static)))


@kinds
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (4, 3, 5, 2), (2, 3, 2, 3, 2)], ids=len)
def test_running_statistics_move_as_in_pytorch(shape: tuple[int, ...], static: bool) -> None:
    torch.manual_seed(0)
    norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    module = nn.Sequential(norm[len(shape)](3, eps=1e-5, momentum=0.3), nn.Flatten())
    network = lower(module, torch.randn(shape) * 0.01, "train")
    assert_right(network, compute(network, level.source, partial(Execution, static=static)))
