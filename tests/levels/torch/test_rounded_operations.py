"""Operations that round: how far, and what they leave exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from golow.levels.torch.first_overflow import watch
from golow.levels.torch.in_double import InDouble
from golow.levels.torch.rounded_operations import FLOAT32_KERNELS, Grid, RoundedOperations
from golow.records.errors import GolowError
from support.examples import examples

COARSE = Grid(7, -126)

numbers = st.lists(st.floats(allow_subnormal=True), min_size=1, max_size=20)
seeds = st.integers(0, 1000)


def rounded(call: Callable[..., Tensor], *given: Tensor, grid: Grid = COARSE) -> Tensor:
    """What the call returns where operations round."""
    with InDouble(), RoundedOperations(grid):
        return call(*given)


@given(numbers, seeds, st.sampled_from([7, 10, 20]))
@examples(100)
def test_a_result_is_a_neighbour_on_the_grid(values: list[float], seed: int, digits: int) -> None:
    given = torch.tensor(values, dtype=torch.float64)
    found = rounded(torch.neg, given, grid=Grid(digits, -126, seed))
    for value, result in zip(values, (-found).tolist(), strict=True):
        if math.isnan(value) or math.isinf(value):
            assert str(result) == str(value)
            continue
        exponent = math.frexp(value)[1]
        step = 2.0 ** (max(exponent - 1, -126) - digits)
        assert abs(result - value) <= step
        assert result / step == round(result / step)


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=20), seeds)
@examples(60)
def test_what_the_precision_holds_stays(values: list[int], seed: int) -> None:
    """Whole numbers, their copies and choices, and sums of them."""
    given = torch.tensor(values, dtype=torch.float64)
    grid = FLOAT32_KERNELS._replace(seed=seed)
    for call in (torch.clone, torch.relu, torch.neg, lambda x: torch.cat([x, x])):
        assert torch.equal(rounded(call, given, grid=grid), call(given))
    small = torch.tensor(values, dtype=torch.float64).remainder(1000)
    assert torch.equal(rounded(torch.sum, small, grid=grid), small.sum())


def test_copies_stay_equal() -> None:
    x = torch.randn(50, dtype=torch.float64)
    same = rounded(lambda y: ((z := y * y) == z.clone()).double(), x)
    assert bool(same.all())


def test_both_neighbours_come_up() -> None:
    """With equal chance, however near one of them is."""
    x = 1 + 2.0**-30 * (1 + torch.rand(4000, dtype=torch.float64))
    for seed in range(5):
        found = rounded(torch.neg, x, grid=COARSE._replace(seed=seed)).neg()
        assert 0.45 < float((found > 1).double().mean()) < 0.55
        assert set(found.tolist()) == {1.0, 1 + 2.0**-7}


@given(st.floats(-1e300, 1e300), seeds)
@examples(60)
def test_equal_numbers_round_alike(value: float, seed: int) -> None:
    """A mask of a constant stays one, and what cancels exactly still does."""
    x = torch.tensor([value, value, -value], dtype=torch.float64)
    first, again, negative = rounded(torch.neg, x, grid=COARSE._replace(seed=seed)).tolist()
    assert first == again == -negative


def test_no_number_becomes_infinite() -> None:
    x = torch.full((9,), torch.finfo(torch.float64).max, dtype=torch.float64)
    for seed in range(20):
        assert bool(torch.isfinite(rounded(torch.neg, x, grid=COARSE._replace(seed=seed))).all())


def test_what_is_written_in_place_is_rounded() -> None:
    x = torch.rand(40, dtype=torch.float64)
    found = rounded(lambda y: y.clone().mul_(1 / 3), x)
    assert torch.equal(found, rounded(torch.clone, found))
    assert float((found - x / 3).abs().max()) < 2.0**-6


def test_whole_and_complex_numbers_pass() -> None:
    places = rounded(lambda x: x.argsort(), torch.rand(9, dtype=torch.float64))
    assert places.dtype == torch.int64
    turned = rounded(lambda x: torch.fft.fft(x) * 1j, torch.rand(8, dtype=torch.float64))
    assert turned.dtype == torch.complex128


@pytest.mark.parametrize("recorded", [False, True])
def test_the_mean_that_a_norm_subtracts_is_rounded(recorded: bool) -> None:
    """Float32's own rounding of it shifts all results alike, and no digit of them shows that."""
    torch.manual_seed(0)
    x = 100 + torch.randn(4, 256, dtype=torch.float64)

    def mean_of_normed(y: Tensor) -> Tensor:
        return functional.layer_norm(y, y.shape[-1:]).mean(-1)

    with torch.inference_mode(not recorded):
        off = rounded(mean_of_normed, x, grid=FLOAT32_KERNELS)
    assert float(off.abs().max()) > 1e-6  # 100 x 2^-20 is 1e-4
    single = mean_of_normed(x.float()).double()
    assert float(single.square().mean().sqrt()) < float(off.square().mean().sqrt())


def test_gradients_round_too() -> None:
    x = torch.rand(64, dtype=torch.float64, requires_grad=True)
    with InDouble(), RoundedOperations(COARSE):
        (torch.sin(x) * torch.cos(x)).sum().backward()
    assert x.grad is not None
    exact = torch.cos(2 * x.detach())
    error = float((x.grad - exact).square().mean().sqrt())
    assert 2.0**-11 < error < 2.0**-5


@given(seeds, st.integers(2, 5))
@examples(20)
def test_float32_is_nearer_than_its_stand_in(seed: int, depth: int) -> None:
    """A chain of products and functions: float32's own error is below that of the grid."""
    draw = np.random.default_rng(seed)
    weights = [torch.from_numpy(draw.standard_normal((32, 32)) / 6) for _ in range(depth)]
    weights = [weight.float().double() for weight in weights]

    def chain(y: Tensor) -> Tensor:
        for weight in weights:
            y = torch.tanh(y @ weight.to(y.dtype))
        return y

    x = torch.from_numpy(draw.standard_normal((16, 32))).float().double()
    exact = chain(x)
    off = rounded(chain, x, grid=FLOAT32_KERNELS._replace(seed=seed)) - exact
    single = chain(x.float()).double() - exact
    assert float(single.norm()) < float(off.norm()) < 100 * float(single.norm())


X = torch.linspace(-3, 3, 600, dtype=torch.float64).mul(7).sin().reshape(4, 6, 5, 5) + 0.1
EYE = 5 * torch.eye(5, dtype=torch.float64)
CLASSES = torch.arange(100).remainder(6).reshape(4, 5, 5)

OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "batch norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "instance norm": functional.instance_norm,
    "group norm": lambda x: functional.group_norm(x, 3),
    "layer norm": lambda x: functional.layer_norm(x, (5, 5)),
    "softmax": lambda x: functional.softmax(x, 1),
    "log softmax": lambda x: functional.log_softmax(x, 1),
    "cross entropy": lambda x: functional.cross_entropy(x, CLASSES, label_smoothing=0.1)[None],
    "gelu": functional.gelu,
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "variance": lambda x: x.var(1),
    "deviation": lambda x: x.std((1, 2)),
    "distances": lambda x: torch.cdist(x.reshape(20, 30), x.reshape(20, 30) + 1),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x + 1, x * 2, is_causal=True),
    "attention by a mask": lambda x: functional.scaled_dot_product_attention(
        x, x + 1, x * 2, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril()
    ),
    "inverse": lambda x: torch.linalg.inv(x + EYE),
    "solution": lambda x: torch.linalg.solve(x + EYE, x),
    "Cholesky": lambda x: torch.linalg.cholesky(x @ x.mT + EYE),
    "Fourier": lambda x: torch.fft.rfft(x).abs(),
    "conjugate": lambda x: torch.fft.fft(x).conj().imag * 0.3,
    "convolution": lambda x: functional.conv2d(x, x[:, :, :3, :3]),
    "long products": lambda x: torch.einsum("bchw,dchw->bd", x, x),
    "products": lambda x: x.prod(1),
    "running products": lambda x: x.cumprod(1),
    "length": lambda x: x.norm(dim=1),
    "rows": lambda x: functional.embedding(torch.tensor([0, 3]), x.reshape(20, 30)),
    "image twice as large": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "maxima": lambda x: functional.max_pool2d(x, 2),
    "written in place": lambda x: x.clone().mul_(1 / 3).sub_(0.1),
    "lists": lambda x: torch._foreach_mul([x, x], 0.3)[0],
    "same memory": lambda x: x.expand(2, 4, 6, 5, 5) / 3,
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("recorded", [False, True])
def test_what_rounds_is_still_the_operation(name: str, recorded: bool) -> None:
    """The steps that stand for a kernel, and what backward passes keep of them, too."""

    def run(*modes: Any) -> list[Tensor]:
        x = X.clone().requires_grad_(recorded)
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            y = OPERATIONS[name](x)
            if recorded:
                (y * torch.arange(y.numel(), dtype=y.dtype).view_as(y).cos()).sum().backward()
        return [y.detach(), *([] if x.grad is None else [x.grad])]

    with nullcontext() if recorded else torch.inference_mode():
        exact, found = run(), run(InDouble(), RoundedOperations(FLOAT32_KERNELS))
    assert len(found) == 1 + recorded
    for one, other in zip(exact, found, strict=True):
        assert 0 < float((one - other).norm()) < 1e-2 * float(one.norm())


def test_below_the_least_number_digits_are_lost() -> None:
    x = torch.tensor([2.0**-20 * 1.2345, 2.0**-40, -(2.0**-40), 0.0], dtype=torch.float64)
    found = {tuple(rounded(torch.neg, x, grid=Grid(10, -14, seed)).tolist()) for seed in range(20)}
    steps = {value / 2.0**-24 for row in found for value in row}
    assert all(step == int(step) for step in steps)
    assert {row[3] for row in found} == {0.0}
    assert {row[1] for row in found} == {0.0, -(2.0**-24)}


def test_a_grid_is_read_as_it_was_written() -> None:
    grid = Grid(10, -14, 3)
    assert Grid.read(str(grid)) == grid
    assert grid.of_gradients().least == -30
    assert FLOAT32_KERNELS.of_gradients().least == -126


# ---------------------------------------------------------------- where numbers cease to be finite


class Divides(torch.nn.Module):
    """Divides by zero in its own forward, or in a layer."""

    def __init__(self, within: bool) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        if within:
            torch.nn.init.constant_(self.second.bias, math.inf)
        self.within = within

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        result: Tensor = self.second(y if self.within else y / (y - y))
        return result


@pytest.mark.parametrize(
    ("within", "said"),
    [(True, r"^layer second \(Linear\)$"), (False, r"^the input of layer second \(Linear\)$")],
)
def test_the_first_layer_that_is_not_finite_is_named(within: bool, said: str) -> None:
    module = Divides(within)
    watch(module)
    with pytest.raises(GolowError, match=said):
        module(torch.ones(2, 3))
