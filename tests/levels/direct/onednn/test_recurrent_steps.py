"""A recurrent layer in inference takes two steps a frame, whatever the number of texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn import level as onednn
from golow.lower.plan.memory_traffic import moves_only
from support.direct.onednn_in_process import Running, assert_steps, lower

pytestmark = pytest.mark.skipif(
    not onednn.probe().available, reason="the package of oneDNN is not installed"
)


class LastState(nn.Module):
    """What a speaker encoder reads of a text."""

    def __init__(self, kind: type[nn.RNNBase], batch_first: bool) -> None:
        super().__init__()
        self.rnn = kind(5, 16, 2, batch_first=batch_first)
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        states = self.rnn(x)[1]
        hidden: Tensor = states[0] if isinstance(states, tuple) else states
        return self.last(hidden[-1])


@pytest.mark.slow
@pytest.mark.parametrize("texts", [1, 4])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_gates_are_one_kernel_that_reads_what_the_products_wrote(
    kind: type[nn.RNNBase], batch_first: bool, texts: int
) -> None:
    torch.manual_seed(0)
    frames = 7
    shape = (texts, frames, 5) if batch_first else (frames, texts, 5)
    module, x = LastState(kind, batch_first).eval(), torch.randn(shape)
    running = Running(lower(module, x, "infer"))
    steps = [step for step in running.built.plan.steps if not step.once]
    inside = [step for step in steps if step.modules[0] == "rnn"]
    copied = [step for step in inside if moves_only(step)]
    # Beside two steps a frame: products of all frames, joined results, first states.
    assert len(copied) <= 3
    assert len(inside) - len(copied) <= 2 * 2 * frames + 2
    assert_steps(running)
    with torch.no_grad():
        expected = module(x).numpy()
    np.testing.assert_allclose(next(iter(running.step().values())), expected, rtol=1e-5, atol=1e-5)
