"""The rule of quantisation, calibration, and the file of a quantised network."""

from __future__ import annotations

import copy
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from golow.records.errors import GolowError
from golow.records.quantization import QuantizedLayer, QuantizedNetwork
from golow.workload.prepare import prepare
from golow.workload.quantization.calibration import BINS, calibrated
from golow.workload.quantization.quantize import quantized, quantized_layer
from golow.workload.quantization.quantized_layers import Quantized, QuantizedLinear
from golow.workload.quantization.quantized_weights import KEY, read_quantized, write_quantized
from golow.workload.quantization.replacing import as_quantized, parameter_count
from golow.workload.request import Request
from support.examples import examples
from support.models.quantized_networks import Blocks, samples_of

RULE = QuantizedLayer(path="layer", rule="int8")

# ---------------------------------------------------------------- numbers


@given(st.integers(1, 8), st.integers(1, 8), st.floats(1e-6, 1e6), st.booleans(), st.integers(0, 9))
@examples(40)
def test_every_weight_is_within_half_a_unit(
    outputs: int, inputs: int, size: float, signed: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    original = nn.Linear(inputs, outputs)
    weight = torch.randn(outputs, inputs, generator=generator) * size
    original.weight.data = weight
    layer = quantized_layer(original, msgspec.structs.replace(RULE, signed=signed), 3.0)
    assert layer.input_scale is not None
    assert float(layer.input_scale) == np.float32((127 if signed else 255) / 3.0)
    unit = layer.output_scale.double() * layer.input_scale.double()
    back = layer.weight.double() * unit[:, None]
    assert bool(((back - weight).abs() <= unit[:, None] * 0.501).all())
    assert bool((layer.weight.abs().amax(1) == 127).all())


def test_zero_channels_and_an_outlier_leave_the_others_alone() -> None:
    original = nn.Linear(4, 3, bias=False)
    original.weight.data = torch.tensor([[0.0] * 4, [1e30, 1.0, 1.0, 1.0], [0.1, -0.25, 0.3, 0.4]])
    layer = quantized_layer(original, RULE, 1.0)
    assert layer.weight[0].tolist() == [0] * 4
    assert layer.weight[1].tolist() == [127, 0, 0, 0]
    assert layer.weight[2].tolist() == [32, -79, 95, 127]
    assert bool(torch.isfinite(layer.output_scale).all())


def test_a_layer_that_reads_only_zeros_gives_its_bias() -> None:
    original = nn.Linear(4, 3)
    layer = quantized_layer(original, RULE, 0.0)
    assert torch.equal(layer(torch.zeros(2, 4)), original.bias.expand(2, 3))


def test_weights_that_are_not_finite_are_refused() -> None:
    original = nn.Linear(4, 3)
    original.weight.data[1, 1] = torch.inf
    with pytest.raises(GolowError, match="weights of layer are not finite"):
        quantized_layer(original, RULE, 1.0)


def test_the_layer_is_what_its_rule_says() -> None:
    """Against NumPy, with whole numbers of 64 bits."""
    x = torch.randn(5, 7)
    made = quantized(nn.Sequential(nn.Linear(7, 4)).eval(), "int8", samples_of(x))
    [layer] = (m for m in made.module.modules() if isinstance(m, QuantizedLinear))
    assert layer.input_scale is not None
    scaled = x.numpy() * layer.input_scale.numpy()
    numbers = np.clip(np.rint(scaled), -128, 127).astype(np.int64)
    sums = numbers @ layer.weight.numpy().astype(np.int64).T
    wanted = sums * layer.output_scale.double().numpy() + layer.bias.detach().double().numpy()
    found = copy.deepcopy(layer).double()(x.double()).detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


# ---------------------------------------------------------------- weights of 4 bits


@given(st.sampled_from((2, 4, 32, 64)), st.floats(1e-30, 1e30), st.integers(0, 9))
@examples(30)
def test_four_bits_are_within_half_a_unit_of_what_is_not_clipped(
    group: int, size: float, seed: int
) -> None:
    original = nn.Linear(3 * group, 5)
    weight = torch.randn(5, 3 * group, generator=torch.Generator().manual_seed(seed)) * size
    original.weight.data = weight
    rule = QuantizedLayer(path="layer", rule="int4-weights", group=group)
    layer = quantized_layer(original, rule, 0.0)
    assert layer.weight.dtype == torch.uint8 and layer.weight.shape == (5, 3, group // 2)
    assert layer.numbers == weight.numel()
    back = layer(torch.eye(3 * group)).detach().T - original.bias.detach()[:, None]
    unit = layer.output_scale.expand(5, 3, group).flatten(1)
    back, clipped = back.double(), weight.double().clamp(-8 * unit, 7 * unit)
    assert bool(((back - clipped).abs() <= unit * 0.501 + 1e-6).all())
    # Clipping never costs more than it gives: all weights within the range are the first try.
    whole = weight.reshape(5, 3, group).double()
    step = whole.abs().amax(2, keepdim=True) / 7
    plain = (torch.round(whole / step) * step - whole).square().sum()
    assert float((back - weight).square().sum()) <= float(plain) * 1.01 + 1e-12


def test_a_group_of_zeros_and_an_outlier_leave_the_others_alone() -> None:
    original = nn.Linear(8, 1, bias=False)
    original.weight.data = torch.tensor([[0.0, 0, 1e30, 1, 0.7, -0.7, 0.1, 0.2]])
    rule = QuantizedLayer(path="layer", rule="int4-weights", group=2)
    layer = quantized_layer(original, rule, 0.0)
    back = layer(torch.eye(8)).detach().flatten()
    assert back[:2].tolist() == [0, 0]
    assert float(back[2]) == pytest.approx(1e30, rel=0.1) and float(back[3]) == 0
    assert back[4:6].tolist() == pytest.approx([0.7, -0.7], rel=0.1)


def test_layers_without_groups_are_kept() -> None:
    module = nn.Sequential(nn.Linear(96, 64), nn.Linear(64, 48), nn.Linear(48, 3)).eval()
    made = quantized(module, "int4-weights", samples_of(), group=32)
    assert [layer.path for layer in made.layers] == ["0", "1"]
    assert {layer.path: layer.reason for layer in made.kept} == {
        "2": "its 48 inputs cannot be divided into groups of 32"
    }
    with pytest.raises(GolowError, match="0: a Conv2d; int4-weights quantises only Linear"):
        quantized(nn.Sequential(nn.Conv2d(1, 1, 1)).eval(), "int4-weights", samples_of())
    with pytest.raises(GolowError, match=r"(?s)0: its weights are bfloat16.*module\.float\(\)"):
        quantized(nn.Sequential(nn.Linear(64, 2)).bfloat16(), "int4-weights", samples_of())


def test_named_layers_have_8_bits_instead_of_4() -> None:
    """Others too, which do not fit 4 bits."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 64), nn.Linear(64, 5)]
    module, x = nn.Sequential(*layers).eval(), torch.randn(3, 1, 6, 6)
    made = quantized(module, "int4-weights", samples_of(), group=32, in_8_bits=["0", "3"])
    rules = {layer.path: (layer.rule, layer.group) for layer in made.layers}
    assert rules == {
        "0": ("int8-weights", 0), "2": ("int4-weights", 32), "3": ("int8-weights", 0),
    }  # fmt: skip
    again = as_quantized(copy.deepcopy(module), made.layers)
    again.load_state_dict(made.module.state_dict())
    narrow = quantized(module, "int4-weights", samples_of(), group=32).module
    with torch.no_grad():
        assert torch.equal(again(x), made.module(x))
        errors = [float((net(x) - module(x)).norm()) for net in (made.module, narrow)]
    assert errors[0] < errors[1]
    with pytest.raises(GolowError, match="no linear layer in '4'"):
        quantized(module, "int4-weights", samples_of(), group=32, in_8_bits=["4"])


# ---------------------------------------------------------------- calibration


def test_ranges_are_those_of_all_samples() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    first, second = torch.tensor([[0.5, -3.0]]), torch.tensor([[2.0, 1.0]])
    found = calibrated(module, ["0", "2"], samples_of(first, second))
    assert found["0"] == (True, 3.0, "")
    assert not found["2"].signed


class Readers(nn.Module):
    """Layers that read one tensor, before and after it is changed in place, and another one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.same, self.changed, self.copy = (nn.Linear(2, 2) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0
        y = self.one(x) + self.same(x) + self.copy(x.clone())
        return y + self.changed(x.relu_())


def test_layers_that_read_one_tensor_share_its_scale(tmp_path: Path) -> None:
    made = quantized(Readers().eval(), "int8", samples_of(torch.randn(4, 2), torch.randn(4, 2)))
    assert {layer.path: layer.like for layer in made.layers} == {
        "one": "", "same": "one", "changed": "", "copy": "",
    }  # fmt: skip
    again = as_quantized(Readers().eval(), made.layers)
    again.load_state_dict(made.module.state_dict())
    for module in (made.module, again):
        scales = {id(layer.input_scale) for layer in module.modules() if hasattr(layer, "rule")}
        assert len(scales) == 3


def test_a_percentile_leaves_out_outliers() -> None:
    module = nn.Sequential(nn.Linear(1, 1))
    x = torch.cat([torch.linspace(0, 1, 9999), torch.tensor([1000.0])])[:, None]
    found = calibrated(module, ["0"], samples_of(x), share=0.999)
    assert 1.0 <= found["0"].size <= 1000 / BINS + 1
    assert calibrated(module, ["0"], samples_of(x), share=1.0)["0"].size == 1000


def test_samples_that_are_not_finite_are_refused() -> None:
    module = nn.Sequential(nn.Linear(1, 1))
    with pytest.raises(GolowError, match="layer 0 reads values that are not finite"):
        calibrated(module, ["0"], samples_of(torch.tensor([[torch.nan]])))


# ---------------------------------------------------------------- which layers


class Kinds(nn.Module):
    """Layers that are quantised, and those that are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.taken, self.idle = nn.Linear(8, 8), nn.Linear(8, 8)
        self.line = nn.Conv1d(1, 1, 1)
        self.circular = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.again = self.taken

    def forward(self, x: Tensor) -> Tensor:
        y = self.again(self.taken(x))
        y = self.circular(self.line(y[:, None])[:, None])[:, 0]
        return self.attention(y, y, y)[0]


def test_what_cannot_be_quantised_is_kept_with_its_reason() -> None:
    x = torch.randn(2, 8)
    made = quantized(Kinds().eval(), "int8", samples_of(x))
    assert [layer.path for layer in made.layers] == ["taken"]
    assert {layer.path: layer.reason for layer in made.kept} == {
        "idle": "it does not run during calibration",
        "line": "a Conv1d; only Conv2d and Linear are quantised",
        "circular": "its padding is circular",
        "attention.out_proj": "a NonDynamicallyQuantizableLinear; only Conv2d and Linear are "
        "quantised",
    }
    assert made.module.get_submodule("again") is made.module.get_submodule("taken")
    made.module(x)


@pytest.mark.parametrize("keep", [["first"], ["first", "deep"], ["head", "head"]])
def test_named_layers_are_kept(keep: list[str]) -> None:
    module, x = Blocks().eval(), torch.randn(2, 3, 9, 9)
    made = quantized(module, "int8", samples_of(x), keep=keep)
    assert {layer.path for layer in made.layers} == {"first", "second", "deep", "head"} - set(keep)
    assert {layer.path: layer.reason for layer in made.kept} == dict.fromkeys(
        keep, "it is to be kept"
    )


def test_a_module_stands_for_its_layers() -> None:
    module = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), nn.Linear(3, 3)).eval()
    made = quantized(module, "int8", samples_of(torch.randn(2, 3)), keep=["0"])
    assert [layer.path for layer in made.layers] == ["1"]
    with pytest.raises(GolowError, match="no linear layer in 'fist'") as raised:
        quantized(Blocks().eval(), "int8", samples_of(torch.randn(2, 3, 9, 9)), keep=["fist"])
    assert "did you mean first?" in str(raised.value)


def test_pytorchs_own_encoder_keeps_its_layers() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    module = nn.Sequential(encoder, nn.Linear(8, 3)).eval()
    x = torch.randn(2, 4, 8)
    made = quantized(module, "int8", samples_of(x))
    assert [layer.path for layer in made.layers] == ["1"]
    made.module(x)


def test_a_network_without_such_layers_is_refused() -> None:
    with pytest.raises(GolowError, match="no convolution of images and no linear layer"):
        quantized(nn.Sequential(nn.ReLU()).eval(), "int8", samples_of(torch.ones(1, 1)))
    once = quantized(nn.Sequential(nn.Linear(4, 2)).eval(), "int8-weights", tuple).module
    with pytest.raises(GolowError, match="is quantised already"):
        quantized(once, "int8-weights", tuple)


def test_the_original_stays_as_it_is() -> None:
    module, x = Blocks().eval(), torch.randn(2, 3, 9, 9)
    before = copy.deepcopy(module.state_dict())
    quantized(module, "int8", samples_of(x))
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_weights_alone_are_within_their_rounding() -> None:
    module, x = Blocks().eval(), torch.randn(2, 3, 9, 9)
    made = quantized(module, "int8-weights", samples_of(x))
    layers = [layer for layer in made.module.modules() if isinstance(layer, Quantized)]
    assert layers and all(layer.input_scale is None for layer in layers)
    with torch.no_grad():
        error = (made.module(x) - module(x)).norm() / module(x).norm()
    assert 0 < error < 0.02


# ---------------------------------------------------------------- the file


@pytest.fixture
def written(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    prepared = prepare(Request("lenet5", batch=2))
    made = quantized(prepared.module, "int8", samples_of(prepared.batches[0].inputs[0]))
    network = QuantizedNetwork(
        model="lenet5", rule="int8", calibration=None, layers=made.layers, kept=made.kept
    )
    return write_quantized(made.module, network, tmp_path / "q.safetensors")


def test_the_file_is_the_network(written: Path) -> None:
    again = prepare(Request("lenet5", batch=2, weights=written))
    assert len(again.workload.source.quantized) == 5
    assert parameter_count(again.module) == again.workload.parameters == 61_706
    state = load_file(written)
    assert state["conv1.weight"].dtype == torch.int8
    assert all(torch.equal(state[n], t) for n, t in again.module.state_dict().items())


def test_a_file_of_a_plain_network_is_none(tmp_path: Path) -> None:
    save_file({"x": torch.ones(1)}, tmp_path / "plain.safetensors")
    assert read_quantized(tmp_path / "plain.safetensors") is None


def test_a_damaged_rule_is_said(tmp_path: Path) -> None:
    save_file({"x": torch.ones(1)}, tmp_path / "bad.safetensors", {KEY: '{"layers": 3}'})
    with pytest.raises(GolowError, match="does not state how its network is quantised"):
        read_quantized(tmp_path / "bad.safetensors")


def test_another_model_is_refused(written: Path) -> None:
    with pytest.raises(GolowError, match="which the model lacks"):
        prepare(Request("mlp", batch=2, weights=written))
    with pytest.raises(GolowError, match="where the model has a ReLU"):
        as_quantized(nn.Sequential(nn.ReLU()), [msgspec.structs.replace(RULE, path="0")])


def test_it_is_not_trained(written: Path) -> None:
    with pytest.raises(GolowError, match="is a quantised network, which cannot be trained"):
        prepare(Request("lenet5", batch=2, weights=written, mode="train"))
