"""Writing and adding to elements that several index tensors name, by a generated kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.kernels.copies import STRIP, places_put
from support.direct.in_process import assert_right
from support.direct.onednn_in_process import Running, compute, lower
from support.direct.onednn_kernels import run


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize(
    ("outer", "sizes", "width"), [(3, [5], 1), (1, [4, 3], STRIP + 5), (700, [3, 2], 4)]
)
def test_places_are_written_in_their_order(
    outer: int, sizes: list[int], width: int, add: bool
) -> None:
    """Also where two of them are equal, and where they count from the end."""
    draw, count = np.random.default_rng(0), 9
    places = [draw.integers(-size, size, count) for size in sizes]
    for each in places:
        each[3] = each[0]
    x = draw.standard_normal((outer, *sizes, width)).astype(np.float32)
    values = draw.standard_normal((outer, count, width)).astype(np.float32)
    found, wanted = np.full_like(x, np.nan), x.copy()
    kernel = places_put("float32", "int64", outer, sizes, count, width, add=add)
    run(kernel, x, values, *places, found)
    for k in range(count):
        place = (slice(None), *(each[k] for each in places))
        wanted[place] = values[:, k] + (wanted[place] if add else 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


class Pairs(nn.Module):
    """Products of pairs of vectors, each once, as in DLRM, and a bias from a table of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 6), nn.Linear(10, 5)
        self.table = nn.Parameter(torch.randn(4, 3))
        self.register_buffer("pairs", torch.tril_indices(5, 5, offset=-1))
        self.register_buffer("places", torch.tensor([3, 0, 1, 1, 3, 2, 0, 1, 2, 3]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        first, second = self.pairs
        taken = (x @ x.transpose(1, 2))[:, first, second]
        return self.last(taken + self.table[self.places].square().mean(1))


def test_gradients_of_indices_need_no_numpy() -> None:
    torch.manual_seed(0)
    network = lower(Pairs(), torch.randn(3, 5, 4), "train")
    steps = Running(network).built.plan.steps
    assert {s.implementation for s in steps if s.operation == "index_put"} == {"generated"}
    assert_right(network, compute(network))
