"""Dropout by generated kernels draws what NumPy's generator draws, at any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.kernels import WORTH_A_THREAD
from golow.levels.direct.onednn.kernels.dropout import (
    PIECE,
    advance,
    dropout,
    dropout_backward,
    generator,
)
from golow.levels.direct.onednn.run.kernel_compilation import openmp, set_threads
from support.direct.onednn_in_process import LAYOUTS, Running, lower
from support.direct.onednn_kernels import run

COUNTS = (1, PIECE, 7, PIECE - 1, 5 * PIECE + 3, 2 * WORTH_A_THREAD + 1, PIECE)
"""After an odd one, the next mask begins with half of what the generator gave."""


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = openmp().omp_get_max_threads()
    set_threads(request.param)
    yield request.param
    set_threads(before)


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
def test_masks_are_those_of_numpy(threads: int, probability: float) -> None:
    ours, numpys = generator(11), np.random.Generator(np.random.PCG64(11))
    factor = np.float32(1 / (1 - probability) if probability < 1 else 0)
    for count in COUNTS:
        x = np.arange(1, count + 1, dtype=np.float32)
        y, inner, mask = np.empty_like(x), np.empty_like(x), np.empty(count, bool)
        run(dropout(count, probability), x, y, mask, ours)
        run(advance(count), ours)
        run(dropout_backward(count, float(factor)), x, mask, inner, ours)
        wanted = numpys.random(count, np.float32) >= np.float32(probability)
        assert np.array_equal(mask, wanted), (threads, count)
        assert np.array_equal(y, x * wanted * factor)
        assert np.array_equal(inner, y)


def test_what_is_switched_off_keeps_all_and_draws_nothing() -> None:
    ours, count = generator(3), PIECE + 5
    ours["active"] = 0
    before, x = ours.copy(), np.ones(count, np.float32)
    y, mask = np.empty_like(x), np.zeros(count, bool)
    run(dropout(count, 0.5), x, y, mask, ours)
    run(advance(count), ours)
    assert mask.all()
    assert np.array_equal(y, x)
    run(dropout_backward(count, 2.0), x, mask, y, ours)
    assert np.array_equal(y, x)
    assert ours == before


class Twice(nn.Module):
    """Dropout of an image and of rows, of odd numbers of elements."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 17, 3)
        self.rest = nn.Sequential(nn.Dropout(0.3), nn.Flatten(), nn.Dropout(0.4))

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.rest(self.conv(x))
        return dropped


def test_masks_depend_on_the_seed_alone() -> None:
    """Not on the layouts, nor on whether there is a compiler; each step has others."""
    network = lower(Twice(), torch.randn(3, 3, 7, 5), "train")
    plans = [Running(network, lambda _, tag=tag: tag) for tag in LAYOUTS.values()]
    assert all(
        s.implementation != "numpy" for s in plans[0].built.plan.steps if "drop" in s.operation
    )
    steps = []
    for running in (*plans, Running(network, generates=False)):
        running.switches.dropout = True
        running.point_at(0)
        steps.append([running.step()["output/0"] != 0 for _ in range(2)])
    assert all(np.array_equal(made, steps[0]) for made in steps[1:])
    assert not np.array_equal(*steps[0])
