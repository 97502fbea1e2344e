"""Softmax over an axis that is not the last one, and elements by their indices, by generated
kernels: the losses of segmentation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.kernels import WORTH_A_THREAD, column_softmax
from golow.levels.direct.onednn.kernels.columns import BLOCK
from golow.levels.direct.onednn.kernels.places import gathered, scattered
from golow.records.workload import Mode
from support.direct.in_process import assert_right
from support.direct.onednn_in_process import Running, compute, lower
from support.direct.onednn_kernels import run


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SIZES = [(1, 3, 2), (2, 21, BLOCK + 3), (3, 1, 5)]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("sizes", [*SIZES, (2, 19, 700)])
def test_columns_of_softmax(sizes: tuple[int, int, int], log: bool) -> None:
    assert WORTH_A_THREAD < 2 * 19 * 700  # the last sizes are shared by threads
    x = drawn(*sizes) * 5
    y, inner = np.empty_like(x), np.empty_like(x)
    run(column_softmax.softmax(*sizes, log), x, y)
    leaf = torch.from_numpy(x).double().requires_grad_()
    wanted = leaf.log_softmax(1) if log else leaf.softmax(1)
    np.testing.assert_allclose(y, wanted.detach(), rtol=4e-6, atol=1e-7)
    outer = np.cos(x)
    run(column_softmax.softmax_backward(*sizes, log), outer, y, inner)
    [gradient] = torch.autograd.grad(wanted, leaf, torch.from_numpy(outer).double())
    np.testing.assert_allclose(inner, gradient, rtol=1e-5, atol=2e-6)


def test_columns_without_an_answer_are_pytorchs() -> None:
    x = np.zeros((1, 5, 4), np.float32)
    x[:, :, 0], x[:, 2, 1], x[:, 0, 2], x[:, 1, 3] = -np.inf, np.nan, np.inf, -np.inf
    y = np.empty_like(x)
    run(column_softmax.softmax(*x.shape, False), x, y)
    np.testing.assert_allclose(y, torch.from_numpy(x).softmax(1), equal_nan=True)


@pytest.mark.parametrize("index", [np.int64, np.int32])
@pytest.mark.parametrize("sizes", SIZES)
def test_elements_by_their_indices(sizes: tuple[int, int, int], index: type[np.integer]) -> None:
    outer, rows, inner = sizes
    x, source = drawn(*sizes), drawn(outer, 4, inner, seed=1)
    places = np.random.default_rng(0).integers(0, rows, source.shape).astype(index)
    where, given = torch.from_numpy(places).long(), torch.from_numpy(source)
    kind, around = places.dtype.name, (outer, rows, 4, inner)
    found = np.empty_like(source)
    run(gathered("float32", kind, *around), x, places, found)
    assert np.array_equal(found, torch.from_numpy(x).gather(1, where))
    found = np.empty_like(x)
    run(scattered("float32", kind, *around, add=True), x, places, source, found)
    wanted = torch.from_numpy(x).scatter_add(1, where, given)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    run(scattered("float32", kind, *around, add=False, value="-1.0f"), x, places, found)
    assert np.array_equal(found, torch.from_numpy(x).scatter(1, where, -1.0))


class Segmented(nn.Module):
    """Scores of classes for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layers(x)
        return scores


class Placed(nn.Module):
    """What `gather` takes and `scatter` puts, of all and of some of the other axes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        order = y.argsort(1)
        taken = y.gather(1, order[:, :2]).sum(1)
        counted = torch.zeros_like(y).scatter_add(1, order, y * 2)
        return counted.softmax(1).mean(1) + taken + y.gather(1, order[:1, :3, :2]).sum()


NETWORKS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "segmented": (Segmented, (2, 3, 9, 9)),
    "placed": (Placed, (3, 5, 6)),
}


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, mode: Mode) -> None:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    network = lower(make(), torch.randn(shape), mode)
    assert_right(network, compute(network))
    by = [(s.operation, s.implementation) for s in Running(network).built.plan.steps]
    if name == "segmented":
        assert not [step for step in by if step[1] == "numpy"]
