"""Each operator alone at `jax`, with arguments drawn from all that is legal, against float64: its
value and its gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from golow.levels.traced.jax.level import probe
from support.examples import examples
from support.graphs.drawn_operators import FAMILIES

if not probe().available:
    pytest.skip("JAX is not installed", allow_module_level=True)

from support.direct.in_process import assert_right
from support.direct.jax_in_process import compute, lower


@pytest.mark.parametrize("family", FAMILIES)
@examples(3, same=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 99))
def test_an_operator_alone_is_right(family: str, data: st.DataObject, seed: int) -> None:
    alone = data.draw(FAMILIES[family])
    torch.manual_seed(seed)
    network = lower(alone.module(), torch.randn(alone.shape), "train", loss="mse_loss")
    assert not [node.op for node in network.graph.nodes if not node.op.startswith("golow.")]
    assert_right(network, compute(network))


def test_a_large_mean_takes_no_digits_from_the_variance() -> None:
    """Mean square minus squared mean of numbers about 1000 would be off by 0.06 of 1."""
    torch.manual_seed(0)
    network = lower(
        torch.nn.BatchNorm2d(3), 1000 + torch.randn(4, 3, 8, 8), "train", loss="mse_loss"
    )
    assert_right(network, compute(network))
