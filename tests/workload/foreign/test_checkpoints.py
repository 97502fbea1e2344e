"""Checkpoints in GPTQ's, AWQ's and fp8's layout, packed here number by number as the formats are
described, against a plain loop over their weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import golow
from golow.records.errors import GolowError
from golow.records.workload import ModelSource
from golow.workload.hub.huggingface import load_huggingface
from golow.workload.prepare import prepare
from golow.workload.quantization.foreign import awq, gptq
from golow.workload.quantization.quantized_layers import Quantized
from golow.workload.request import Request

INPUTS, OUTPUTS, GROUP = 64, 16, 16
GROUPS = INPUTS // GROUP
SIDE_BY_SIDE = range(8)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


class Numbers(NamedTuple):
    """A quantised weight as numbers. numbers: [inputs][outputs], scales and zeros:
    [groups][outputs], group_of: [inputs]."""

    numbers: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    group_of: np.ndarray

    def weight(self) -> np.ndarray:
        """[outputs, inputs] by a plain loop."""
        found = np.zeros((OUTPUTS, INPUTS), np.float32)
        for i in range(INPUTS):
            for o in range(OUTPUTS):
                group = self.group_of[i]
                difference = int(self.numbers[i, o]) - int(self.zeros[group, o])
                found[o, i] = np.float32(self.scales[group, o]) * np.float32(difference)
        return found


def drawn(*, zeros: bool, ordered: bool = False) -> Numbers:
    draw = np.random.default_rng(3)
    group_of = np.arange(INPUTS) // GROUP
    return Numbers(
        draw.integers(0, 16, (INPUTS, OUTPUTS)),
        draw.uniform(0.01, 0.1, (GROUPS, OUTPUTS)).astype(np.float16),
        draw.integers(0, 16, (GROUPS, OUTPUTS)) if zeros else np.full((GROUPS, OUTPUTS), 8),
        draw.permutation(group_of) if ordered else group_of,
    )


def words(numbers: np.ndarray, order: tuple[int, ...] | range = SIDE_BY_SIDE) -> Tensor:
    """Rows of numbers, eight in a word: the one at order[0] of each eight in its lowest bits."""
    rows, columns = numbers.shape
    found = np.zeros((rows, columns // 8), np.uint32)
    for row in range(rows):
        for word in range(columns // 8):
            for place, of_eight in enumerate(order):
                number = int(numbers[row, 8 * word + of_eight])
                found[row, word] |= np.uint32(number << 4 * place)
    return torch.from_numpy(found.view(np.int32))


def in_gptq(made: Numbers, less: int = 1) -> dict[str, Tensor]:
    return {
        "qweight": words(made.numbers.T).T.contiguous(),
        "qzeros": words((made.zeros - less) % 16),
        "scales": torch.from_numpy(made.scales),
        "g_idx": torch.from_numpy(made.group_of).int(),
    }


def in_awq(made: Numbers) -> dict[str, Tensor]:
    return {
        "qweight": words(made.numbers, AWQ_ORDER),
        "qzeros": words(made.zeros, AWQ_ORDER),
        "scales": torch.from_numpy(made.scales),
    }


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, OUTPUTS), nn.ReLU(), nn.Linear(OUTPUTS, 5)).eval()


def written(folder: Path, layer: dict[str, Tensor], **config: object) -> Path:
    """A checkpoint whose first layer this is, in halves as published; the rest is as it was."""
    state = {name: x.half() for name, x in network().state_dict().items() if name != "0.weight"}
    file = folder / "model.safetensors"
    save_file(state | {f"0.{name}": tensor.contiguous() for name, tensor in layer.items()}, file)
    if config:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return file


def read(file: Path) -> nn.Module:
    return prepare(Request(network(), torch.randn(3, INPUTS), weights=file)).module


def weight_of(module: nn.Module) -> np.ndarray:
    """What the first layer multiplies by, seen from outside."""
    layer = module.get_submodule("0")
    assert isinstance(layer, Quantized) and layer.bias is not None
    with torch.no_grad():
        return (layer(torch.eye(INPUTS)) - layer.bias).T.numpy()


# ---------------------------------------------------------------- 4 bits


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("form", ["gptq", "ordered", "gptq_v2", "awq"])
def test_weights_of_4_bits_are_exact(form: str, zeros: bool, tmp_path: Path) -> None:
    made = drawn(zeros=zeros, ordered=form == "ordered")
    if form == "gptq_v2":
        file = written(tmp_path, in_gptq(made, less=0), checkpoint_format=form)
    else:
        file = written(tmp_path, in_awq(made) if form == "awq" else in_gptq(made))
    module = read(file)
    bias = module.get_submodule("0").bias
    np.testing.assert_array_almost_equal_nulp(weight_of(module) + 0, made.weight() + 0, 64)
    assert torch.equal(bias, network().state_dict()["0.bias"].half().float())
    rule = module.get_submodule("0").rule
    assert (rule.zeros, rule.ordered, rule.group) == (zeros, form == "ordered", GROUP)


@pytest.mark.parametrize(("reader", "pack"), [(awq, in_awq), (gptq, in_gptq)])
def test_a_wrong_order_of_numbers_is_found(
    reader: object, pack: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = drawn(zeros=True)
    assert callable(pack)
    file = written(tmp_path, pack(made))
    if reader is awq:
        monkeypatch.setattr(awq, "ORDER", SIDE_BY_SIDE)
    else:
        reading = gptq.numbers_of
        monkeypatch.setattr(gptq, "numbers_of", lambda found: reading(found, AWQ_ORDER))
    assert np.abs(weight_of(read(file)) - made.weight()).max() > 0.1


@pytest.mark.parametrize("form", ["ordered", "awq"])
def test_levels_compute_it(form: str, tmp_path: Path) -> None:
    """In float64 by NumPy; one row and more than a level reads narrow weights for."""
    made = drawn(zeros=True, ordered=form == "ordered")
    module = read(written(tmp_path, in_awq(made) if form == "awq" else in_gptq(made)))
    state = {name: x.half().double().numpy() for name, x in network().state_dict().items()}
    for rows in (2, 20) if form == "awq" else (2,):
        x = torch.randn(rows, INPUTS)
        hidden = x.double().numpy() @ made.weight().T.astype(np.float64) + state["0.bias"]
        wanted = np.maximum(hidden, 0) @ state["2.weight"].T + state["2.bias"]
        compiled = golow.compile(module, x, level="onednn", quiet=True)
        with torch.no_grad():
            for found in (compiled(x), module(x)):
                np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"qzeros": torch.zeros(GROUPS, OUTPUTS // 4).int()}, "its weights have 8 bits"),
        ({"qzeros": words(np.full((GROUPS, OUTPUTS), 8))}, "8 in the format gptq_v2 and 9 in gptq"),
        ({"g_idx": torch.zeros(INPUTS).int()}, "its g_idx has groups of"),
        ({"g_idx": torch.full((INPUTS,), -1).int()}, "g_idx does not name one of 4 groups"),
        ({"g_idx": torch.zeros(60).int()}, "g_idx does not name one of 4 groups"),
        ({"qweight": torch.zeros(8, OUTPUTS)}, "qweight is float32 8x16, not a table of int32"),
        ({"qzeros": torch.zeros(16).int()}, "qzeros is int32 16, not a table"),
        ({"scales": torch.ones(0, OUTPUTS)}, "scales is float32 0x16, not a table of float"),
        ({"scales": torch.full((GROUPS, OUTPUTS), torch.nan)}, "its scales are not finite"),
        ({"qweight": torch.zeros(8, 4).int()}, "is no layout that golow knows"),
        ({"qzeros": None}, "has qweight, scales, g_idx and no qzeros"),
        ({"scales": torch.ones(3, OUTPUTS)}, "64 inputs are not 3 groups of one even size"),
    ],
)
def test_what_no_rule_expresses_is_refused(
    changed: dict[str, Tensor | None], message: str, tmp_path: Path
) -> None:
    layer = in_gptq(drawn(zeros=True)) | changed
    file = written(tmp_path, {name: x for name, x in layer.items() if x is not None})
    with pytest.raises(GolowError, match=message) as raised:
        read(file)
    assert "the layer 0 cannot be read as it is" in str(raised.value)


# ---------------------------------------------------------------- fp8


def in_fp8(scales: Tensor, name: str = "weight_scale") -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    wide = torch.randn(OUTPUTS, INPUTS, generator=generator) * 100
    return {"weight": wide.to(torch.float8_e4m3fn), name: scales}


def value(bits: int) -> float:
    """A number of e4m3 from its bits, by the description of the format."""
    sign, exponent, mantissa = bits >> 7, bits >> 3 & 15, bits & 7
    size = (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6
    return -size if sign else size


@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_inv"])
@pytest.mark.parametrize("shape", [(), (OUTPUTS,), (OUTPUTS, 1), (2, 4)])
def test_fp8_weights_are_exact(shape: tuple[int, ...], name: str, tmp_path: Path) -> None:
    """(2, 4): blocks of 12 outputs by 16 inputs, of which the last outputs are fewer."""
    scales = torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.01
    layer = in_fp8(scales, name)
    module = read(written(tmp_path, layer, weight_block_size=[12, 16]))
    bits = layer["weight"].view(torch.uint8)
    wanted = np.zeros((OUTPUTS, INPUTS), np.float32)
    for o in range(OUTPUTS):
        for i in range(INPUTS):
            scale = scales[o // 12, i // 16] if len(shape) == 2 and shape[1] > 1 else (
                scales.reshape(-1)[o] if shape else scales
            )  # fmt: skip
            wanted[o, i] = np.float32(value(int(bits[o, i]))) * np.float32(scale)
    np.testing.assert_allclose(weight_of(module), wanted, rtol=1e-6, atol=1e-6)
    x = torch.randn(3, INPUTS)
    with torch.no_grad():
        compiled = golow.compile(module, x, level="onednn", quiet=True)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["input_scale", "activation_scale"])
@pytest.mark.parametrize("shape", [(), (OUTPUTS,), (OUTPUTS, 1)])
def test_activations_in_fp8_are_rounded(shape: tuple[int, ...], name: str, tmp_path: Path) -> None:
    """Against PyTorch's own conversion; some are clipped."""
    scales = torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.01
    unit = torch.tensor(0.037)
    layer = in_fp8(scales) | {name: unit}
    first = read(written(tmp_path, layer)).get_submodule("0")
    assert isinstance(first, Quantized) and first.bias is not None
    x = torch.randn(3, INPUTS, generator=torch.Generator().manual_seed(2)) * 10
    numbers = (x * (1 / unit)).clamp(-448, 448).to(torch.float8_e4m3fn)
    wanted = numbers.double() @ layer["weight"].double().T * (scales.flatten() * unit).double()
    with torch.no_grad():
        found = first.double()(x.double()) - first.bias
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weight": torch.ones(OUTPUTS, INPUTS).to(torch.float8_e5m2)}, "e5m2, and golow"),
        ({"weight_scale": None}, "fp8 and have no weight_scale"),
        ({"input_scale": torch.ones(2)}, "with a scale for each block"),
        ({"input_scale": torch.zeros(())}, "the scale of its activations is 0.0"),
        ({"weight_scale": torch.tensor(torch.inf)}, "its weight_scale is not finite"),
        ({"weight_scale": torch.ones(3, 3)}, "3x3 scales do not fit 16x64 weights"),
        ({"weight": torch.full((OUTPUTS, INPUTS), torch.nan).to(torch.float8_e4m3fn)}, "finite"),
    ],
)
def test_what_fp8_lacks_is_refused(
    changed: dict[str, Tensor | None], message: str, tmp_path: Path
) -> None:
    layer = in_fp8(torch.ones(())) | changed
    file = written(tmp_path, {name: x for name, x in layer.items() if x is not None})
    with pytest.raises(GolowError, match=message):
        read(file)


@pytest.mark.parametrize("block", [[0, 16], ["a", 16], 128])
def test_a_block_without_sense_is_refused(block: object, tmp_path: Path) -> None:
    file = written(tmp_path, in_fp8(torch.ones(2, 4)), weight_block_size=block)
    with pytest.raises(GolowError, match=r"config\.json has the weight_block_size"):
        read(file)


def test_the_configuration_beside_other_weights_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file(network().state_dict(), file)
    (tmp_path / "config.json").write_text("[1]")
    assert torch.equal(read(file).get_parameter("0.weight"), network().get_parameter("0.weight"))


def test_a_quantised_model_of_the_hub_is_named_as_a_file() -> None:
    stated = json.dumps({"model_type": "llama", "quantization_config": {"quant_method": "awq"}})
    source = ModelSource(kind="huggingface", name="./llama-awq", configuration=stated)
    with pytest.raises(GolowError, match=r"llama-awq are quantised \(awq\)") as raised:
        load_huggingface(source)
    assert "--weights FOLDER/model.safetensors" in str(raised.value)
