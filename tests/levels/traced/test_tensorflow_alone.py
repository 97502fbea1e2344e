"""Each operator alone at `tensorflow`, with arguments drawn from all that is legal, against
float64: its value and its gradient, compiled by XLA and by TensorFlow's own kernels."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from torch import nn

from golow.levels.traced.tensorflow import level as level
from golow.levels.traced.tensorflow.level import probe
from support.examples import examples
from support.graphs.drawn_operators import FAMILIES
from support.models import optimizers

if not probe().available:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

from golow.levels.traced.tensorflow.execution import Execution
from golow.levels.traced.tensorflow.kernels import require_kernels
from golow.records.errors import Unsupported
from golow.records.workload import Optimizer
from support.direct.in_process import Network, assert_right
from support.direct.source_in_process import compute, lower


@pytest.mark.parametrize("xla", [True, False], ids=["xla", "graph"])
@pytest.mark.parametrize("family", FAMILIES)
@examples(3, same=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data(), seed=st.integers(0, 99))
def test_an_operator_alone_is_right(family: str, xla: bool, data: st.DataObject, seed: int) -> None:
    alone = data.draw(FAMILIES[family])
    torch.manual_seed(seed)
    network = lower(alone.module(), torch.randn(alone.shape), "train", loss="mse_loss")
    assert not [node.op for node in network.graph.nodes if not node.op.startswith("golow.")]
    if not xla:
        assume(has_kernels(network))
    assert_right(network, compute(network, level.source, partial(Execution, xla=xla)))


@pytest.mark.parametrize("xla", [True, False], ids=["xla", "graph"])
@pytest.mark.parametrize("optimizer", optimizers.ALL, ids=repr)
def test_every_update_is_right(optimizer: Optimizer, xla: bool) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    network = lower(module, torch.randn(6, 5), "train", optimizer)
    assert_right(network, compute(network, level.source, partial(Execution, xla=xla)))


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (4, 3, 5, 2), (2, 3, 2, 3, 2)], ids=len)
def test_running_statistics_move_as_in_pytorch(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    module = nn.Sequential(norm[len(shape)](3, eps=1e-5, momentum=0.3), nn.Flatten())
    network = lower(module, torch.randn(shape) * 0.01, "train")
    for xla in (True, False):
        assert_right(network, compute(network, level.source, partial(Execution, xla=xla)))


def has_kernels(network: Network) -> bool:
    """True if TensorFlow has kernels of its own for it; `tensorflow:graph` refuses the rest."""
    try:
        require_kernels(network.graph, network.prepared.workload)
    except Unsupported:
        return False
    return True
