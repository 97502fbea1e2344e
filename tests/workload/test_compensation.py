"""Rounding of weights whose errors make up for one another, against least squares."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.records.errors import GolowError
from golow.records.quantization import QuantizationRule
from golow.workload.quantization import calibration, compensation
from golow.workload.quantization.calibration import moments
from golow.workload.quantization.compensation import DAMPING, Numbers, rounded
from golow.workload.quantization.fp8_linear import E4m3Numbers
from golow.workload.quantization.int4_weights import FourBits
from golow.workload.quantization.quantize import quantized
from support.models.quantized_networks import samples_of

OUTPUTS, INPUTS, GROUP = 5, 24, 8


def alike(rows: int = 400, inputs: int = INPUTS) -> Tensor:
    """Samples whose inputs rise and fall together, in float64."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(rows, 3, generator=generator) @ torch.randn(3, inputs, generator=generator)
    return (common + 0.1 * torch.randn(rows, inputs, generator=generator)).double()


def weight(outputs: int = OUTPUTS, inputs: int = INPUTS) -> Tensor:
    found = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(1))
    return found.double()


def values(numbers: Tensor, scale: Tensor) -> Tensor:
    return (numbers * scale).flatten(1)


@pytest.mark.parametrize(
    ("to", "group"), [(FourBits(), 8), (FourBits(), INPUTS), (E4m3Numbers(), INPUTS)]
)
def test_later_weights_are_those_of_least_squares(
    to: Numbers, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each input, the weights of all later ones are solved for again, by normal equations."""
    monkeypatch.setattr(compensation, "BLOCK", 5)
    x, wide = alike(), weight()
    products = x.T @ x / len(x)
    damped = products + DAMPING * products.diagonal().mean() * torch.eye(INPUTS)
    left, found = wide.clone(), torch.zeros_like(wide)
    for i in range(INPUTS):
        if i % group == 0:
            scale = to.scale_of(left[:, i : i + group])
        found[:, i : i + 1] = to.nearest(left[:, i : i + 1], scale) * scale
        done, later = slice(0, i + 1), slice(i + 1, INPUTS)
        lost = (wide - found)[:, done]
        back = torch.linalg.solve(damped[later, later], damped[later, done] @ lost.T).T
        left[:, later] = wide[:, later] + back
    made = values(*rounded(wide, to, group, products))
    torch.testing.assert_close(made, found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("to", "factor"), [(FourBits(), 1.5), (E4m3Numbers(), 2)])
def test_outputs_move_less_than_with_the_nearest_numbers(to: Numbers, factor: float) -> None:
    x, wide = alike(), weight()
    plain = values(*rounded(wide, to, GROUP, None))
    made = values(*rounded(wide, to, GROUP, x.T @ x / len(x)))
    moved = [float((x @ (found - wide).T).norm()) for found in (made, plain)]
    assert moved[0] < moved[1] / factor
    assert float((made - wide).norm()) > float((plain - wide).norm())


@pytest.mark.parametrize("products", [torch.eye(INPUTS), torch.zeros(INPUTS, INPUTS)])
@pytest.mark.parametrize("to", [FourBits(), E4m3Numbers()])
def test_inputs_that_are_unrelated_get_the_nearest_numbers(to: Numbers, products: Tensor) -> None:
    both = (rounded(weight(), to, GROUP, given) for given in (products.double(), None))
    for one, other in zip(*both, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("to", [FourBits(), E4m3Numbers()])
def test_hard_weights_and_inputs_stay_finite(to: Numbers) -> None:
    """Zeros, an outlier, an input that is always zero, and fewer samples than inputs."""
    x, wide = alike(rows=2), weight()
    x[:, 3] = 0
    wide[0], wide[1, 2], wide[2] = 0, 1e30, -1e-30
    numbers, scale = rounded(wide, to, GROUP, x.T @ x)
    assert bool((numbers.abs() <= 448).all()) and bool(torch.isfinite(scale).all())
    found = values(numbers, scale)
    assert bool((found[0] == 0).all())
    assert float(found[1, 2]) == pytest.approx(1e30, rel=0.1)


# ---------------------------------------------------------------- in a network


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()


@pytest.mark.parametrize("rule", ["int4-weights", "fp8-weights"])
def test_a_network_learns_from_its_samples(rule: QuantizationRule) -> None:
    module, x = network(), alike(300, 64).float()
    learned = quantized(module, rule, samples_of(x[:100], x[100:200]), group=32).module
    plain = quantized(module, rule, samples_of(), group=32).module
    with torch.no_grad():
        moved = [float((net(x[200:]) - module(x[200:])).norm()) for net in (learned, plain)]
    assert moved[0] < moved[1] / 2


def test_moments_are_taken_in_as_many_passes_as_memory_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, x = network(), torch.randn(40, 64)
    together = list(moments(module, ["0", "2"], samples_of(x)))
    monkeypatch.setattr(calibration, "MOST_BYTES", 1)
    alone = list(moments(module, ["0", "2"], samples_of(x[:10], x[10:])))
    assert [found.path for found in alone] == ["0", "2"]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one.products, other.products, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        together[0].products, (x.double().T @ x.double()) / 40, rtol=1e-4, atol=1e-5
    )
    with pytest.raises(GolowError, match="layer 0 reads values that are not finite"):
        list(moments(module, ["0"], samples_of(torch.full((1, 64), torch.inf))))
