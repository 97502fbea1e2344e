"""Each operator alone at `onednn`, with arguments drawn from all that is legal, against float64:
its value and its gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from golow.levels.direct.onednn.level import probe
from support.examples import examples
from support.graphs.drawn_operators import FAMILIES

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from support.direct.in_process import assert_right
from support.direct.onednn_in_process import compute, lower


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@examples(6, same=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 99))
def test_an_operator_alone_is_right(family: str, data: st.DataObject, seed: int) -> None:
    alone = data.draw(FAMILIES[family])
    torch.manual_seed(seed)
    network = lower(alone.module(), torch.randn(alone.shape), "train", loss="mse_loss")
    assert not [node.op for node in network.graph.nodes if not node.op.startswith("golow.")]
    assert_right(network, compute(network))
