"""Linear layers of the rule fp8, against exact arithmetic: numbers of e4m3 are whole multiples of
2^-9, whose products and sums 64-bit integers hold."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import golow
from golow.levels.direct.onednn.level import probe
from golow.levels.torch.flipped_activations import NEAR, flipped, leave_unrounded
from golow.records.quantization import QuantizedLayer
from golow.report.quantization import table
from golow.workload.quantization.fp8_linear import E4M3, Fp8Linear
from golow.workload.quantization.quantize import quantized, quantized_layer
from support.direct.onednn_in_process import Running, compute, lower
from support.direct.step_checks import steps_check
from support.examples import examples
from support.models.quantized_networks import samples_of

RULE = QuantizedLayer(path="layer", rule="fp8")
FRACTION = 2**9
"""The smallest number of e4m3 is one in this many."""
EVERY = torch.arange(127, dtype=torch.uint8).view(E4M3).double()
"""All numbers of e4m3 from 0 on."""


def layer_of(weight: Tensor, size: float = 448.0) -> Fp8Linear:
    """A layer without bias; activations of this size become the largest number."""
    original = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    original.weight.data = weight.float()
    layer = quantized_layer(original, RULE, size)
    assert isinstance(layer, Fp8Linear)
    return layer


def whole(numbers: Tensor) -> np.ndarray:
    """The numbers as multiples of the smallest one."""
    multiples = numbers.double().numpy() * FRACTION
    assert (multiples == np.rint(multiples)).all()
    return multiples.astype(np.int64)


# ---------------------------------------------------------------- activations


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations_are_those_of_the_type(dtype: torch.dtype) -> None:
    """Of all numbers, all middles and what is next to them: PyTorch's conversion is in bits."""
    middles = (EVERY[1:] + EVERY[:-1]) / 2
    near = torch.cat([EVERY, middles]).float()
    ends = [torch.nextafter(near, torch.tensor(end)) for end in (-torch.inf, torch.inf)]
    tiny = torch.tensor([2.0**-10, 2.0**-11, 1e-30, 1e-45])
    x = torch.cat([near, *ends, tiny])
    x = torch.cat([x, -x]).clamp(-448, 448)
    found = layer_of(torch.eye(1)).to(dtype).activations(x.to(dtype))
    assert torch.equal(found, x.to(E4M3).to(dtype))


def test_what_is_too_large_is_clipped_and_what_is_no_number_stays_so() -> None:
    layer = layer_of(torch.eye(1))
    x = torch.tensor([448.0, 449, 464, 480, 1e30, torch.inf, -1e30])
    assert layer.activations(x).tolist() == [448.0] * 6 + [-448.0]
    assert bool(layer.activations(torch.tensor([torch.nan])).isnan().all())


@pytest.mark.parametrize("size", [0.0, 1e-42, 3.0, 1e30])
def test_the_largest_of_the_calibration_becomes_the_largest_number(size: float) -> None:
    layer = layer_of(torch.eye(2), size)
    x = torch.tensor([size, -size])
    found = layer.activations(x)
    if size > 1e-30:
        assert found.tolist() == [448.0, -448.0]
    torch.testing.assert_close(layer(x), x, rtol=1e-6, atol=1e-37)


# ---------------------------------------------------------------- layers


@given(st.integers(1, 9), st.integers(1, 70), st.integers(1, 5), st.integers(0, 9))
@examples(30)
def test_sums_are_exact(outputs: int, inputs: int, rows: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64)
    weight *= 10.0 ** torch.randint(-20, 20, (outputs, 1), generator=generator)
    layer = layer_of(weight, 3.0)
    x = torch.randn(rows, inputs, generator=generator)
    in_double = copy.deepcopy(layer).double()
    numbers = whole(layer.values[layer.weight[:, 0].long()])
    sums = whole(in_double.activations(x.double())) @ numbers.T
    wanted = sums / FRACTION**2 * layer.output_scale.flatten().double().numpy()
    np.testing.assert_array_equal(in_double(x.double()).detach().numpy(), wanted)
    assert (np.abs(numbers).max(1) == 448 * FRACTION).all()


def test_each_weight_is_the_nearest_number() -> None:
    weight = torch.randn(6, 50, generator=torch.Generator().manual_seed(0)).double()
    layer = layer_of(weight)
    assert layer.input_scale is not None
    scale = layer.output_scale[:, 0].double() * layer.input_scale.double()
    found = layer.values[layer.weight[:, 0].long()].double()
    both = torch.cat([EVERY, -EVERY])
    nearest = ((weight / scale)[..., None] - both).abs().amin(2)
    torch.testing.assert_close((weight / scale - found).abs(), nearest, rtol=1e-4, atol=1e-6)


def test_a_row_of_zeros_and_an_outlier_leave_the_others_alone() -> None:
    weight = torch.tensor([[0.0, 0, 0], [1e30, 1, 1], [0.1, -0.2, 0.4]])
    found = layer_of(weight)(torch.eye(3)).T
    assert found[0].tolist() == [0.0] * 3 and found[1, 1:].tolist() == [0.0] * 2
    torch.testing.assert_close(found[2], weight[2], rtol=0.07, atol=0)


def test_only_linear_layers_are_quantised_and_need_samples() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(8, 3)).eval()
    made = quantized(module, "fp8", samples_of(torch.randn(4, 1, 2, 2)))
    assert [layer.path for layer in made.layers] == ["2"]
    assert "fp8 quantises only Linear" in made.kept[0].reason


# ---------------------------------------------------------------- levels


def network() -> nn.Module:
    """Layers of odd sizes, with an activation between them."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(37, 65), nn.GELU(), nn.Linear(65, 19)).eval()


@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
def test_the_direct_level_computes_it_and_finds_an_error() -> None:
    x = torch.randn(5, 37, generator=torch.Generator().manual_seed(1))
    module = quantized(network(), "fp8", samples_of(x)).module
    lowered = lower(module, x, "infer")
    found = compute(lowered)["0/output/0"]
    given = lowered.prepared.batches[0].inputs[0]
    with torch.no_grad():
        wanted = copy.deepcopy(module).double()(given.double())
        other = copy.deepcopy(module).double()
        leave_unrounded(other)
        unrounded = other(given.double())
    error = np.abs(found - wanted.numpy()).max()
    assert error < 1e-4 < float((unrounded - wanted).abs().max())
    running = Running(lowered)
    running.point_at(0)
    execution = running.execution
    assert not steps_check(lowered, execution, execution.run_watched).wrong
    running.state["2.weight"].flat[5] ^= 8  # a bit of the exponent
    execution.load(running._weight)
    wrong = steps_check(lowered, execution, execution.run_watched).wrong
    assert {item.layer for item in wrong} == {"2"}


def test_the_record_names_its_numbers(tmp_path: Path) -> None:
    made = golow.quantize(
        "mlp", batch=4, calibrate="inputs", rule="fp8", quiet=True, out=tmp_path / "q.safetensors"
    ).quantization
    assert made.network.calibration is not None
    assert {layer.rule for layer in made.network.layers} == {"fp8"}
    text = table.network_text(made.network)
    assert "8-bit floating-point (e4m3) weights, a scale for each output; 8-bit floating" in text


# ---------------------------------------------------------------- what rounding may decide


def test_only_what_rounding_may_decide_flips() -> None:
    """The distance of neighbours differs: 32 near 448, 1 near 8, and 1/512 near 0."""
    x = torch.tensor([[248.0, 8.5, 1.5 * 2**-9, 400.0, 9.0]], dtype=torch.float64)
    layer = layer_of(torch.eye(5)).double()
    assert flipped(layer, x, each=False).tolist() == [[240.0, 9.0, 2**-9, 416.0, 9.0]]
    assert layer.activations(x).tolist() == [[256.0, 8.0, 2**-8, 384.0, 9.0]]
    far = x + 10 * NEAR * float(x.square().mean().sqrt())
    assert torch.equal(flipped(layer, far, each=False)[0, :2], layer.activations(far)[0, :2])


def test_one_flips_in_each_sample() -> None:
    x = torch.tensor([[8.1, 9.4, 103.0], [0.0, 450.0, 20.9]], dtype=torch.float64)
    layer = layer_of(torch.eye(3)).double()
    moved = flipped(layer, x, each=True) != layer.activations(x)
    assert moved.tolist() == [[False, True, False], [False, False, True]]
