"""TensorBoard logs, read back by TensorBoard's own reader, say what the record says."""

from __future__ import annotations

import io
import math
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from msgspec.structs import replace
from PIL import Image
from safetensors.numpy import save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from golow.api import TrainingResult
from golow.programs.training.training_record import Epoch, Training
from golow.records.errors import GolowError
from golow.records.workload import ModelSource
from golow.report.training.tensorboard import write_tensorboard
from support.examples import examples
from support.records.drawn_trainings import epoch, run, training, trainings

BEGUN = datetime.fromisoformat("2026-11-20T18:00:00+00:00").timestamp()
EPOCHS = (epoch(1, (2.5, 1.25), 0.5, 4), epoch(2, (1.0, math.nan), 0.75, 8), epoch(3, (), None, 2))
SHOWN = training([run("eager", EPOCHS), run("cudnn:autotune", EPOCHS[:1], seed=1), run("libtorch")])


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    return events.Reload()


def scalars(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


@pytest.mark.slow
def test_every_scalar_is_that_of_the_record(tmp_path: Path) -> None:
    assert write_tensorboard(SHOWN, tmp_path / "runs", tmp_path) == ()
    events = read(tmp_path / "eager" / "default" / "seed-0")
    expected = {
        "step/loss": [(1, 2.5), (2, 1.25), (3, 1.0), (4, math.nan)],
        "train/loss": [(1, 1.875), (2, math.nan)],
        "train/seconds": [(1, 4), (2, 8), (3, 2)],
        "train/samples per second": [(1, 15_000), (2, 7_500), (3, 30_000)],
        "train/learning rate": [(1, 0.001), (2, 0.0005), (3, 0.001 / 3)],
        "test/loss": [(1, 0.5), (2, 0.25)],
        "test/accuracy": [(1, 0.5), (2, 0.75)],
        "test/seconds": [(1, 0.25), (2, 0.5)],
        "test/samples per second": [(1, 40_000), (2, 20_000)],
        "memory/resident (B)": [(n, float(np.float32(2**30 + n))) for n in (1, 2, 3)],
        "device/utilization": [(1, 0.9), (2, 0.9), (3, 0.9)],
        "device/energy (J)": [(1, 1000), (2, 2000), (3, 3000)],
    }
    assert set(events.Tags()["scalars"]) == set(expected)
    for tag, points in expected.items():
        found = scalars(events, tag)
        assert [step for step, _ in found] == [step for step, _ in points]
        values = [value for _, value in points]
        assert [value for _, value in found] == pytest.approx(values, rel=1e-6, nan_ok=True)


def test_events_carry_the_time_of_training(tmp_path: Path) -> None:
    write_tensorboard(SHOWN, tmp_path / "runs", tmp_path)
    events = read(tmp_path / "eager" / "default" / "seed-0")
    steps = [event.wall_time - BEGUN for event in events.Scalars("step/loss")]
    assert steps == pytest.approx([2, 4, 8, 12])
    epochs = [event.wall_time - BEGUN for event in events.Scalars("test/accuracy")]
    assert epochs == pytest.approx([4, 12])


def test_a_folder_a_run_so_that_they_lie_over_one_another(tmp_path: Path) -> None:
    write_tensorboard(SHOWN, tmp_path / "runs", tmp_path / "logs")
    found = {file.parent.relative_to(tmp_path / "logs") for file in tmp_path.rglob("events.*")}
    runs = ("eager/default/seed-0", "cudnn-autotune/default/seed-1", "model")
    assert {str(folder) for folder in found} == set(runs)


@pytest.mark.slow
def test_the_confusion_matrix_of_the_best_epoch_is_a_picture(tmp_path: Path) -> None:
    write_tensorboard(SHOWN, tmp_path / "runs", tmp_path)
    events = read(tmp_path / "eager" / "default" / "seed-0")
    [picture] = events.Images("confusion/best epoch")
    assert picture.step == 2
    pixels = np.asarray(Image.open(io.BytesIO(picture.encoded_image_string)))
    assert pixels.shape == (picture.height, picture.width, 3)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


# ---------------------------------------------------------------- weights


def checkpoint(folder: Path, name: str, epoch: int, weights: dict[str, np.ndarray]) -> Path:
    place = folder / "eager" / "default" / "seed-0"
    place.mkdir(parents=True, exist_ok=True)
    save_file(weights, place / name, {"format": "pt", "epoch": str(epoch)})
    return place / name


@pytest.mark.slow
def test_histograms_are_of_the_checkpoints_that_are_there(tmp_path: Path) -> None:
    latest = {"layer.weight": np.linspace(-1, 3, 400, dtype=np.float32).reshape(20, 20)}
    best = {"layer.weight": np.full((20, 20), 7, np.float32)}
    counted = {"norm.num_batches_tracked": np.array(3)}
    checkpoint(tmp_path / "runs", "weights.safetensors", 3, latest | counted)
    checkpoint(tmp_path / "runs", "best.safetensors", 2, best | counted)
    assert write_tensorboard(SHOWN, tmp_path / "runs", tmp_path) == ()
    events = read(tmp_path / "eager" / "default" / "seed-0")
    assert events.Tags()["histograms"] == ["weights/layer.weight"]
    first, second = events.Histograms("weights/layer.weight")
    assert (first.step, second.step) == (2, 3)
    value = second.histogram_value
    assert (value.num, value.min, value.max) == (400, -1, 3)
    assert value.sum == pytest.approx(400)
    assert (first.histogram_value.min, first.histogram_value.max) == (7, 7)


@pytest.mark.slow
def test_one_checkpoint_that_is_both_is_one_histogram(tmp_path: Path) -> None:
    weights = {"weight": np.ones(4, np.float32)}
    for name in ("weights.safetensors", "best.safetensors"):
        checkpoint(tmp_path / "runs", name, 2, weights)
    write_tensorboard(SHOWN, tmp_path / "runs", tmp_path)
    events = read(tmp_path / "eager" / "default" / "seed-0")
    assert [found.step for found in events.Histograms("weights/weight")] == [2]


@pytest.mark.slow
def test_weights_that_are_not_finite_and_files_that_cannot_be_read_are_noted(
    tmp_path: Path,
) -> None:
    bad = {"one": np.array([1, math.nan, math.inf], np.float32), "two": np.array([math.nan])}
    checkpoint(tmp_path / "runs", "weights.safetensors", 3, bad)
    cut = checkpoint(tmp_path / "runs", "best.safetensors", 2, bad)
    cut.write_bytes(cut.read_bytes()[:-1])
    unread, one, two = write_tensorboard(SHOWN, tmp_path / "runs", tmp_path)
    assert "best.safetensors: no histograms: it cannot be read" in unread
    assert "2 of 3 values of one are not finite" in one
    assert "1 of 1 values of two are not finite" in two
    events = read(tmp_path / "eager" / "default" / "seed-0")
    [histogram] = events.Histograms("weights/one")
    assert histogram.histogram_value.num == 1


# ---------------------------------------------------------------- the model's graph


@pytest.mark.slow
def test_the_graph_is_the_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(1800, 3))
    module[1].eval()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    assert write_tensorboard(SHOWN, tmp_path / "runs", tmp_path, module) == ()
    operations = {node.op for node in read(tmp_path / "model").Graph().node}
    assert "aten::_convolution" in operations
    assert module.training
    assert not module[1].training
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert capsys.readouterr().out == ""


class Untraceable(nn.Module):
    """Fails under the tracer in its own way."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise self.error("no way through\nand a long story")


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError, KeyError, TypeError])
def test_a_model_that_cannot_be_traced_is_a_note(
    tmp_path: Path, error: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    [note] = write_tensorboard(SHOWN, tmp_path / "runs", tmp_path, Untraceable(error))
    assert note.startswith(f"no graph of the model: {error.__name__}: ")
    assert "no way through" in note
    assert "\n" not in note
    assert "test/accuracy" in read(tmp_path / "eager" / "default" / "seed-0").Tags()["scalars"]
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------- files


@pytest.mark.slow
def test_writing_again_replaces_what_golow_wrote_and_nothing_else(tmp_path: Path) -> None:
    write_tensorboard(SHOWN, tmp_path / "runs", tmp_path)
    own = tmp_path / "eager" / "default" / "seed-0" / "events.out.tfevents.1.somebody.else"
    own.write_bytes(b"")
    longer: tuple[Epoch, ...] = (*EPOCHS, epoch(4))
    write_tensorboard(training([run("eager", longer)]), tmp_path / "runs", tmp_path)
    assert own.exists()
    own.unlink()
    events = read(tmp_path / "eager" / "default" / "seed-0")
    assert [step for step, _ in scalars(events, "train/seconds")] == [1, 2, 3, 4]


def test_without_tensorboard_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(GolowError) as told:
        write_tensorboard(SHOWN, tmp_path / "runs", tmp_path / "logs")
    assert "golow[tensorboard]" in told.value.hint


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    with pytest.raises(GolowError, match="logs/eager/default/seed-0 cannot be written"):
        write_tensorboard(SHOWN, tmp_path / "runs", tmp_path / "logs")


@pytest.mark.slow
@examples(4, suppress_health_check=list(HealthCheck))
@given(trainings())
def test_no_record_is_too_odd_for_a_log(
    tmp_path_factory: pytest.TempPathFactory, shown: Training
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    assert write_tensorboard(shown, folder / "runs", folder) == ()
    found = {file.parent.relative_to(folder) for file in folder.rglob("events.*")}
    assert len(found) == 1 + sum(bool(run.epochs) for run in shown.runs)


def test_the_code_that_a_record_names_is_not_run(tmp_path: Path) -> None:
    """A record is data; a model that its owner gives is drawn."""
    code, ran = tmp_path / "model.py", tmp_path / "ran"
    code.write_text(f"open({str(ran)!r}, 'w')\nclass Net: pass\n")
    source = ModelSource(kind="file", name=str(code), attribute="Net")
    runs = tuple(replace(run, workload=replace(run.workload, source=source)) for run in SHOWN.runs)
    result = TrainingResult(replace(SHOWN, runs=runs), tmp_path / "runs")
    assert result.tensorboard(tmp_path / "logs") == ()
    assert not ran.exists()
