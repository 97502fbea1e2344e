"""Sums of very many numbers: kernels add them up in parts, or in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe

needs_package = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")

COUNT = 98_304
PRIME = 99_991  # cannot be cut into pieces of one length

SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean().reshape(1),
    "sum": lambda x: x.sum().reshape(1),
    "mean of squares": lambda x: (x * x).mean().reshape(1),
    "few rows": lambda x: x.mean(1),
    "most": lambda x: x.amax().reshape(1),
}


class Sums(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@needs_package
@pytest.mark.parametrize("count", [COUNT, PRIME])
@pytest.mark.parametrize("name", SUMS)
def test_they_are_right_to_a_few_roundings(name: str, count: int) -> None:
    """One after the other in float32 they would be off by hundreds of roundings."""
    from support.direct.onednn_in_process import Running, lower

    x = 1 + torch.rand(2, count, generator=torch.Generator().manual_seed(0))
    running = Running(lower(Sums(SUMS[name]), x, "infer"))
    running.point_at(0)
    found = running.step()["output/0"].astype(np.float64)
    wanted = SUMS[name](x.double()).numpy()
    np.testing.assert_allclose(found, wanted, rtol=4 * 2.0**-24)
