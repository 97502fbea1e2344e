"""What a gradient sums is measured where its terms cancel, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.torch.gradient_terms import PREFIX, SUMMATION, cancelled, move, of_tensors, watch
from golow.records.workload import Optimizer
from support.examples import examples


def sizes_of(loss: Tensor, **parameters: nn.Parameter) -> dict[str, float]:
    """What has cancelled in the gradients of this loss, by name."""
    sizes = watch(loss)
    loss.backward()  # type: ignore[no-untyped-call]
    found = cancelled(sizes)
    return {name: found[p] for name, p in parameters.items() if p in found}


def centred(x: Tensor, dimension: int = 0) -> Tensor:
    return x - x.mean(dimension, keepdim=True)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def root_mean_square(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt())


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(2, 5), st.floats(-12, 12))
@examples(60)
def test_a_bias_that_is_centred_away(seed: int, rows: int, columns: int, power: float) -> None:
    """Of the sum of these weights, each column of which is centred: the terms are the centred
    weights. The scale may be any."""
    weights = 10**power * drawn(seed, rows, columns)
    bias = nn.Parameter(drawn(seed + 1, columns))
    x = drawn(seed + 2, rows, columns)
    found = sizes_of((centred(x + bias) * weights).sum(), bias=bias)
    terms = centred(weights).abs().sum(0)
    assert found == {"bias": pytest.approx(root_mean_square(terms))}


def layers() -> dict[str, tuple[nn.Module, Tensor, int]]:
    """Layers with a bias, an input, and the dimension of the output's channels."""
    return {
        "linear": (nn.Linear(3, 4), drawn(0, 16, 3), 1),
        "linear of tokens": (nn.Linear(3, 4), drawn(0, 16, 5, 3), 2),
        "convolution": (nn.Conv2d(3, 4, 3), drawn(0, 16, 3, 6, 6), 1),
        "transposed": (nn.ConvTranspose2d(3, 4, 3), drawn(0, 16, 3, 6, 6), 1),
        "batch norm": (nn.BatchNorm2d(3), drawn(0, 16, 3, 6, 6), 1),
    }


@pytest.mark.parametrize("name", layers())
def test_the_bias_of_a_layer_before_a_batch_norm(name: str) -> None:
    torch.manual_seed(0)
    layer, x, channels = layers()[name]
    y = layer.double()(x)
    y.retain_grad()
    norm = nn.functional.batch_norm(y.transpose(1, channels), None, None, training=True)
    loss = (norm * drawn(1, *norm.shape)).sum()
    found = sizes_of(loss, **dict(layer.named_parameters()))
    assert y.grad is not None
    others = [dimension for dimension in range(y.dim()) if dimension != channels]
    wanted = {"bias": pytest.approx(root_mean_square(y.grad.abs().sum(others)))}
    # Batch norm scales what a second one scales back.
    if name == "batch norm":
        assert found.keys() <= {"bias", "weight"}
        found.pop("weight", None)
    assert found == wanted


def test_what_does_not_cancel_is_not_named() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 4).double()
    assert sizes_of(layer(drawn(0, 16, 3)).square().sum(), **dict(layer.named_parameters())) == {}


def test_a_gradient_that_is_small_without_cancelling_is_not_named() -> None:
    layer = nn.Linear(3, 4).double()
    loss = 1e-25 * layer(1e-20 * drawn(0, 16, 3)).square().sum()
    assert sizes_of(loss, **dict(layer.named_parameters())) == {}


def test_two_uses_that_cancel_one_another() -> None:
    shared = nn.Parameter(drawn(0, 4))
    x, y = drawn(1, 8, 4), drawn(2, 8, 4)
    found = sizes_of(((x + shared) - (y + shared)).sum(), shared=shared)
    assert found == {"shared": pytest.approx(16.0)}  # 8 terms of 1, and 8 of -1


def test_a_parameter_of_no_use() -> None:
    used, idle = nn.Parameter(drawn(0, 4)), nn.Parameter(drawn(1, 4))
    assert sizes_of(used.sum(), used=used, idle=idle) == {}


class OnlyOnce(torch.autograd.Function):
    """A model's own operation, whose backward pass must not run twice."""

    runs = 0

    @staticmethod
    def forward(context: Any, x: Tensor, bias: Tensor) -> Tensor:
        return x + bias

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        OnlyOnce.runs += 1
        return gradient, gradient.sum(0)


def test_the_models_own_code_is_not_run_again() -> None:
    bias = nn.Parameter(drawn(0, 4))
    y = OnlyOnce.apply(drawn(1, 8, 4), bias)
    assert sizes_of((centred(y) * drawn(2, 8, 4)).sum(), bias=bias) == {}
    assert OnlyOnce.runs == 1


@pytest.mark.parametrize("name", layers())
def test_gradients_move_by_the_roundings_of_their_terms_and_no_others_do(name: str) -> None:
    """Each element of a bias's gradient by half of what the rule allows for its absolute terms;
    the gradients of what is stored before the layer not at all."""
    torch.manual_seed(0)
    layer, x, channels = layers()[name]
    layer, others = layer.double(), [d for d in range(layer(x).dim()) if d != channels]

    def gradients(moved: bool) -> tuple[Tensor, Tensor, Tensor]:
        layer.zero_grad()
        given = x.clone().requires_grad_() * 1.0  # a leaf would count as a parameter
        given.retain_grad()
        y = layer(given)
        y.retain_grad()
        loss = (y * drawn(1, *y.shape)).sum()
        if moved:
            move(loss, torch.Generator().manual_seed(0))
        loss.backward()
        assert y.grad is not None and given.grad is not None
        assert isinstance(layer.bias, Tensor) and layer.bias.grad is not None
        return layer.bias.grad.clone(), given.grad, y.grad.abs().sum(others)

    (bias, before, terms), (there, same, _) = gradients(False), gradients(True)
    assert torch.equal(before, same)
    distance = (there - bias).abs() / terms
    assert torch.allclose(distance, torch.full_like(distance, SUMMATION / 2), rtol=1e-6)


@given(
    st.lists(st.floats(0, 1e3), min_size=1, max_size=4), st.floats(0.0, 0.99), st.floats(1e-6, 1.0)
)
@settings(deadline=None)  # torch's first optimizer imports its compiler
def test_the_sizes_in_momentum_and_parameters_are_those_of_sgd(
    steps: list[float], momentum: float, rate: float
) -> None:
    """SGD of a gradient of that size in each step, without the signs that let it cancel."""
    weight = nn.Parameter(torch.zeros(1).double())
    module = nn.ParameterDict({"weight": weight})
    settings = Optimizer(learning_rate=rate, momentum=momentum)
    found = of_tensors([{weight: size} for size in steps], module, settings)
    optimizer = torch.optim.SGD([weight], lr=rate, momentum=momentum)
    for size in steps:
        weight.grad = torch.full_like(weight, size)
        optimizer.step()
    last = len(steps) - 1
    assert found.get(f"{PREFIX}0/gradient/weight", 0.0) == steps[0]
    moved = found.get(f"{PREFIX}{last}/parameter/weight", 0.0)
    assert moved == pytest.approx(-weight.item(), rel=1e-9, abs=1e-300)
    if momentum and any(steps):
        kept = optimizer.state[weight]["momentum_buffer"].item()
        assert found[f"{PREFIX}{last}/momentum/weight"] == pytest.approx(kept, rel=1e-9)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4), st.floats(0.0, 0.99))
@settings(deadline=None)
def test_adams_momentum_is_a_sum_of_gradients_and_its_parameters_are_not(
    steps: list[float], beta: float
) -> None:
    weight = nn.Parameter(torch.zeros(1).double())
    module = nn.ParameterDict({"weight": weight})
    chosen = Optimizer(name="adam", betas=(beta, 0.999))
    found = of_tensors([{weight: size} for size in steps], module, chosen)
    optimizer = torch.optim.Adam([weight], betas=(beta, 0.999))
    for size in steps:
        weight.grad = torch.full_like(weight, size)
        optimizer.step()
    last = len(steps) - 1
    assert found.keys() == {f"{PREFIX}0/gradient/weight", f"{PREFIX}{last}/momentum/weight"}
    kept = optimizer.state[weight]["exp_avg"].item()
    assert found[f"{PREFIX}{last}/momentum/weight"] == pytest.approx(kept, rel=1e-9)
