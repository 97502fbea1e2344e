"""Networks that other tools quantise: they have the statements about the original."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.programs.quantization import nncf_quantizer, torchao_quantizer
from golow.programs.quantization.fixed_batches import joined, of_rows
from golow.programs.quantization.other_quantizers import OTHERS, OtherQuantizer
from golow.programs.quantization.quantization_record import Quantization
from golow.programs.quantization.samples import of_inputs
from golow.records.errors import Unsupported
from golow.report.quantization import table
from golow.workload.prepare import prepare
from golow.workload.request import Request

PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "nncf", "torchao": "torchao"}


def tool(other: OtherQuantizer) -> str:
    return other.name.split()[0]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Quantization:
    found = golow.quantize(
        "mnist_cnn", calibrate="digits", samples=20, test_samples=50, batch=8, rivals=True,
        quiet=True, out=tmp_path_factory.mktemp("quantized") / "q.safetensors",
    )  # fmt: skip
    return found.quantization


@pytest.mark.slow
@pytest.mark.parametrize("position", range(len(OTHERS)), ids=[tool(other) for other in OTHERS])
def test_another_quantisation_is_a_row_of_its_own(record: Quantization, position: int) -> None:
    other, name = record.others[position], tool(OTHERS[position])
    if find_spec(PACKAGES[name]) is None:
        assert "is not installed" in other.reason
        pytest.skip(f"{PACKAGES[name]} is not installed")
    assert other.reason == ""
    assert other.movement is not None and other.accuracy is not None
    assert 0 < other.movement.outputs[0].error < 0.2
    own = record.accuracy
    assert own is not None and other.accuracy.original == own.original
    titles = [title for title, _ in table.statements(record)]
    assert titles[3 + position].startswith(f"Another quantisation: {name}")


@pytest.mark.parametrize("quantizer", [nncf_quantizer, torchao_quantizer])
def test_what_is_missing_is_said(
    quantizer: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(quantizer, "find_spec", lambda _: None)
    [other] = [other for other in OTHERS if other.name == quantizer.NAME]
    prepared = prepare(Request("mlp", batch=2))
    with pytest.raises(Unsupported, match="is not installed"):
        other.make(prepared, of_inputs(prepared), tmp_path)


def test_torchao_needs_a_linear_layer(tmp_path: Path) -> None:
    if find_spec("torchao") is None:
        pytest.skip("torchao is not installed")
    prepared = prepare(Request(nn.Sequential(nn.Conv2d(1, 1, 3)), torch.randn(2, 1, 5, 5)))
    with pytest.raises(Unsupported, match="of which the model has none"):
        torchao_quantizer.TorchaoModule(prepared, of_inputs(prepared), tmp_path)


# ---------------------------------------------------------------- batches of one size


@pytest.mark.parametrize("rows", [1, 3, 5, 7, 20])
def test_results_are_those_of_any_batch(rows: int) -> None:
    x, y = torch.arange(7.0)[:, None], torch.arange(7)
    sizes = {len(part[0]) for part in of_rows((x, y), rows)}
    assert sizes == {rows}

    def run(batch: tuple[Tensor, ...]) -> list[Tensor]:
        return [batch[0] * 2, batch[1] + 1]

    doubled, more = joined(run, (x, y), rows)
    assert torch.equal(doubled, x * 2) and torch.equal(more, y + 1)
