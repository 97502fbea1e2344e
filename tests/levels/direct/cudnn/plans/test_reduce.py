"""Sums over any axes at `cudnn`, of images and of what is in PyTorch's order."""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn

from golow.lower.plan.memory_traffic import moves_only
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, built, lowered
from support.graphs.drawn_values import drawn

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

Axes = tuple[int, ...]

SUBSETS = [*chain.from_iterable(combinations(range(4), count) for count in range(1, 5))]
# In the memory of an image, [N, H, W, C]; what is left of it is in the order of the axes.
NEIGHBOURS: list[Axes] = [(1,), (1, 3), (2, 3), (0, 2, 3), (1, 2, 3), (0, 1, 2, 3)]


class Sums(nn.Module):
    """Sums over these axes, with and without them left, of an image or of its rows."""

    def __init__(self, subsets: list[Axes], image: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 1)
        self.subsets, self.image = subsets, image

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.first(x) if self.image else x.exp()
        return [
            found
            for axes in self.subsets
            for found in (x.sum(axes), x.mean(axes, keepdim=True).exp())
        ]


@pytest.mark.slow
@pytest.mark.parametrize("image", [True, False])
def test_every_sum_is_right(image: bool) -> None:
    graph = lowered(Sums(SUBSETS, image), "infer", (2, 3, 4, 8))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.slow
def test_axes_that_are_neighbours_in_memory_are_summed_as_they_lie() -> None:
    torch.manual_seed(0)
    for axes in SUBSETS:
        made, _ = built(Sums([axes], image=True), "infer", "bf16", 2, 3, 4, 8)
        image = (2, 6, 4, 8)
        moved = [s for s in made.plan.steps if moves_only(s) and s.reads[0].shape == image]
        assert bool(moved) == (axes not in NEIGHBOURS), axes
