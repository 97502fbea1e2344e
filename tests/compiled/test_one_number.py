"""Operations over the axes of a tensor that has none: PyTorch takes 0 and -1 for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe
from support.direct.compiled_modules import compiled

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


class Over(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(0),
        lambda x: 2 * x.sum(-1),
        lambda x: x.amax(0).exp(),
        lambda x: x.var(0, unbiased=False) + x,
    ],
)
def test_one_number_is_reduced_to_itself(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor(1.5)
    with compiled(Over(function).eval(), x) as f:
        found = f(x)
    assert found.shape == ()
    torch.testing.assert_close(found, function(x))
