"""Quantising a network as a user does it: the file, the record, and levels that run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import golow
from golow.levels.called.emission import write_called
from golow.observer import Silent
from golow.programs.quantization import store
from golow.programs.quantization.quantization_record import Quantization
from golow.programs.quantization.samples import of_data
from golow.report.quantization import table
from golow.workload.quantization.quantized_weights import read_quantized
from golow.workload.request import Request
from support import command

WRONG = Path(__file__).parents[2] / "support" / "worker_programs" / "wrongly_quantized.py"
SMALL = ("mnist_cnn", "--calibrate", "digits", "--samples", "64", "--test-samples", "100")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> golow.QuantizationResult:
    """A network with fresh weights, which need no training to be quantised."""
    return golow.quantize(
        "mnist_cnn", calibrate="digits", samples=64, test_samples=100, quiet=True,
        out=tmp_path_factory.mktemp("quantized") / "q.safetensors",
    )  # fmt: skip


@pytest.fixture
def record(made: golow.QuantizationResult) -> Quantization:
    return made.quantization


# ---------------------------------------------------------------- the record


def test_the_record_has_all_three_statements(record: Quantization) -> None:
    assert [layer.path for layer in record.network.layers] == ["conv1", "conv2", "fc1", "fc2"]
    assert record.network.calibration is not None
    assert record.network.calibration.samples == 64
    assert record.quantized_bytes < record.original_bytes / 3
    assert record.movement.samples == 100
    [output] = record.movement.outputs
    assert 0 < output.error < 0.2
    assert record.accuracy is not None
    assert record.accuracy.original.cases == 100
    assert record.accuracy.verdict in ("passes", "misses", "unclear")
    assert read_quantized(Path(record.file)) == record.network


def test_no_statement_says_that_it_matches_the_original(record: Quantization) -> None:
    text = "\n".join([table.heading(record), *table.described(record)])
    text += "\n".join(line for _, lines in table.statements(record) for line in lines)
    assert "match" not in text


def test_the_record_is_read_again(made: golow.QuantizationResult, tmp_path: Path) -> None:
    folder = made.save(tmp_path)
    assert store.load(folder) == made.quantization
    assert golow.load_quantization(folder).quantization == made.quantization
    assert made.save(tmp_path) == folder
    with pytest.raises(golow.GolowError, match="contains no module"):
        golow.load_quantization(folder).module()


def test_the_module_is_the_file(made: golow.QuantizationResult) -> None:
    module, x = made.module(), torch.randn(4, 1, 8, 8)
    compiled = golow.compile(module, x, level="onednn", quiet=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))


def test_its_plan_is_not_written_as_cpp(made: golow.QuantizationResult, tmp_path: Path) -> None:
    compiled = golow.compile(made.module(), torch.randn(4, 1, 8, 8), level="onednn", quiet=True)
    with pytest.raises(golow.GolowError, match="quantize of conv1 computes in whole numbers"):
        write_called(compiled, "network", tmp_path / "project")  # type: ignore[arg-type]


def test_inputs_have_no_classes(tmp_path: Path) -> None:
    found = golow.quantize(
        "mlp", batch=4, calibrate="inputs", rule="int8-weights", quiet=True,
        out=tmp_path / "q.safetensors",
    )  # fmt: skip
    assert found.quantization.accuracy is None
    assert found.quantization.network.calibration is None
    assert found.quantization.movement.samples == 8


# ---------------------------------------------------------------- the command


def test_the_command_prints_and_saves(tmp_path: Path) -> None:
    ended = command.golow("quantize", *SMALL, "--out", "q.safetensors", folder=tmp_path)
    assert ended.status == 0, ended.error
    for title in (table.PROGRAM, table.NETWORK, table.TASK):
        assert title in ended.output
    assert "golow compare mnist_cnn --weights q.safetensors --channels 1" in ended.output
    [folder] = (tmp_path / "runs").iterdir()
    shown = command.golow("show", str(folder), folder=tmp_path)
    assert table.NETWORK in shown.output
    page = command.golow("report", str(folder), "--out", "page.html", folder=tmp_path)
    assert page.status == 0, page.error


SIZES = ("--channels", "1", "--classes", "10", "--resolution", "8", "--level", "onednn")


def test_the_lowering_shows_each_layers_operator(record: Quantization) -> None:
    given = ("lower", "mnist_cnn", "--weights", record.file, *SIZES)
    shown = command.golow(*given, "--show")
    assert shown.status == 0, shown.error
    for path in ("conv1", "conv2", "fc1", "fc2"):
        assert f"weight={path}_weight" in shown.output
    assert "golow.quantized_convolution" in shown.output
    verified = command.golow(*given, "--verify", "--threads", "1")
    assert verified.status == 0, verified.error
    refused = command.golow(*given, "--roof")
    assert refused.status == 2
    assert "--roof does not accept --weights" in refused.error


REFUSED = {
    "no such data set": (["--calibrate", "nothing"], "there is no data set 'nothing'"),
    "another name": (["--out", "q.bin"], "q.bin is not the name of a .safetensors file"),
    "no folder": (["--out", "no/q.safetensors"], "there is no folder no"),
    "a record in a file": (["--record", "/dev/null/runs"], "name another folder with --record"),
    "a percentile of 0": (["--clipping-percentile", "0"], "not between 50% and 100%"),
    "a gate of 2": (["--gate", "2"], "the gate 2.0 is not a share"),
    "a group of 48": (
        ["--rule", "int4-weights", "--group", "48"],
        "--group 48 is not a group size",
    ),
    "groups of 8 bits": (["--group", "32"], "--group needs --rule int4-weights"),
    "samples of inputs": (
        ["--calibrate", "inputs", "--samples", "8"],
        "so --samples has no effect",
    ),
    "a layer to keep": (["--keep", "conv9"], "did you mean conv2 or conv1?"),
    "no samples": (["--samples", "0"], "--samples 0 has no samples"),
    "8 bits of 8": (["--in-8-bits", "fc1"], "does not apply to --rule int8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_said(name: str, tmp_path: Path) -> None:
    options, words = REFUSED[name]
    given = ["quantize", *SMALL, "--out", "q.safetensors", *options]
    ended = command.golow(*given, folder=tmp_path)
    assert ended.status == 2
    assert words in ended.error


def test_a_data_set_has_the_size_of_the_models_input(tmp_path: Path) -> None:
    """Pictures of a folder have none of their own, and those of `digits` one channel."""
    for name in ("one/a.png", "one/b.png", "two/a.png", "two/b.png"):
        place = tmp_path / "pictures" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 6), 50).convert("RGB").save(place)
    settings = (8, None, None, tmp_path, Silent())
    request = Request(torch.nn.Flatten(), input_shape=(3, 4, 4))
    given, samples = of_data(request, f"folder:{tmp_path / 'pictures'}", *settings)
    assert isinstance(given.example_inputs, tuple)
    assert given.example_inputs[0].shape[1:] == samples.calibration[0].inputs[0].shape[1:]
    assert given.example_inputs[0].shape[1:] == (3, 4, 4)
    with pytest.raises(golow.GolowError, match="the samples of digits are 1x4x4, and the model"):
        of_data(request, "digits", *settings)


def test_a_quantised_network_is_not_trained(tmp_path: Path) -> None:
    with pytest.raises(golow.GolowError, match="cannot be trained") as refused:
        golow.quantize("mlp", calibrate="digits", out=tmp_path / "q.safetensors", mode="train")
    assert refused.value.python_hint == 'leave out mode="train".'


def test_a_quantised_network_is_not_quantised_again(record: Quantization, tmp_path: Path) -> None:
    given = ["quantize", *SMALL, "--out", "q.safetensors", "--weights", record.file]
    ended = command.golow(*given, folder=tmp_path)
    assert ended.status == 2
    assert "is a quantised network already" in ended.error


def test_samples_and_a_rule_belong_together() -> None:
    with pytest.raises(golow.GolowError, match="needs samples"):
        golow.compare("mlp", precision="int8", quiet=True)
    with pytest.raises(golow.GolowError, match="needs a precision that quantises"):
        golow.compare("mlp", calibrate="digits", quiet=True)


# ---------------------------------------------------------------- levels that run it


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_levels_match_the_quantised_network_and_the_original_does_not(tmp_path: Path) -> None:
    workers = {error: [sys.executable, str(WRONG), error] for error in ("unrounded", "scale")}
    result = golow.compare(
        "mnist_cnn", precision="int8", calibrate="digits", levels=["eager", "onednn"],
        workers=workers, threads=1, time_limit=0.1, quiet=True,
    )  # fmt: skip
    verdicts = {run.level: run.check.verdict for run in result.comparison.runs}
    assert verdicts == {
        "eager": "match", "onednn": "match", "unrounded": "differs", "scale": "differs",
    }  # fmt: skip
    assert any("the network is quantised" in note for note in result.comparison.notes)
    assert result.quantization is not None
    folder = result.save(tmp_path)
    again = golow.load(folder)
    assert again.quantization is not None
    assert again.quantization.quantization == result.quantization.quantization
