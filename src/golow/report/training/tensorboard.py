"""A training run as TensorBoard logs: ``tensorboard --logdir FOLDER`` overlays the runs.

There is one folder per run (LEVEL/INITIALISATION/seed-0) and one named ``model`` for the graph.
Events carry the training time since the start, so that TensorBoard's axis "relative" is training
time.
"""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open

from golow.programs.training.store import run_folder
from golow.programs.training.training_record import Epoch, Training, TrainingRun
from golow.records.comparison import Quantity
from golow.records.errors import GolowError
from golow.report.style import drawing
from golow.report.training.caption import conditions, machine
from golow.report.training.confusion import run_confusion
from golow.report.training.series import best_epoch, mean_loss
from golow.storage.files import writing

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure
    from torch import nn
    from torch.utils.tensorboard import SummaryWriter

CHECKPOINTS = ("best.safetensors", "weights.safetensors")
BINS = 64
SUFFIX = ".golow"  # of event files, so that a later call finds and replaces them


def write_tensorboard(
    training: Training, training_folder: Path, folder: Path, module: nn.Module | None = None
) -> tuple[str, ...]:
    """Write the logs of all runs into the folder, replacing those that golow wrote there before;
    returns a note on each thing it could not write.

    training_folder: the training run's folder (``runs/ID``), for its checkpoints. module: the
    model, on the CPU, for its graph. Raises `GolowError` without TensorBoard or matplotlib, or when
    the folder cannot be written.
    """
    notes: list[str] = []
    for run in training.runs:
        if run.epochs:
            files = run_folder(training_folder, run.level, run.initialisation, run.seed).path
            place = folder / files.relative_to(training_folder)
            with _log_writer(place) as writer:
                notes += _write_run(writer, training, run, files)
    with _log_writer(folder / "model") as writer:
        writer.add_text("conditions", f"{conditions(training.plan)} {machine(training.plan)}", 0)
        if module is not None:
            notes += _write_graph(writer, module, training.plan.dataset.shape)
    return tuple(notes)


def _write_run(
    writer: SummaryWriter, training: Training, run: TrainingRun, files: Path
) -> list[str]:
    seconds, step = _begun(training.plan.created), 0
    for epoch in run.epochs:
        each = epoch.train_seconds / max(1, len(epoch.losses))
        for number, loss in enumerate(epoch.losses, 1):
            writer.add_scalar("step/loss", loss, step + number, walltime=seconds + number * each)
        step, seconds = step + len(epoch.losses), seconds + epoch.train_seconds
        for tag, value in _scalars(epoch):
            writer.add_scalar(tag, value, epoch.epoch, walltime=seconds)
    best = best_epoch(run)
    if best is not None:
        image = _picture(run_confusion(training, run, best))
        writer.add_image("confusion/best epoch", image, best.epoch, dataformats="HWC")
    return _write_weights(writer, run, files)


def _begun(created: str) -> float:
    """Seconds since 1970; 0 if the record's time is not a valid time."""
    try:
        return datetime.fromisoformat(created).timestamp()
    except ValueError:
        return 0.0


def _scalars(epoch: Epoch) -> list[tuple[str, float]]:
    """Tags and values that an epoch has."""
    found = {
        "train/loss": mean_loss(epoch),
        "train/seconds": epoch.train_seconds,
        "train/samples per second": _rate(epoch.train_samples, epoch.train_seconds),
        "train/learning rate": epoch.learning_rate,
        "test/loss": epoch.eval_loss,
        "test/accuracy": epoch.eval_accuracy,
        "test/seconds": epoch.eval_seconds,
        "test/samples per second": _rate(epoch.eval_samples, epoch.eval_seconds),
    }
    found |= {f"memory/{_with_unit(item)}": item.value for item in epoch.memory}
    found |= {f"device/{_with_unit(item)}": item.value for item in epoch.device}
    return [(tag, value) for tag, value in found.items() if value is not None]


def _with_unit(quantity: Quantity) -> str:
    return f"{quantity.name} ({quantity.unit})" if quantity.unit else quantity.name


def _rate(samples: int, seconds: float | None) -> float | None:
    return samples / seconds if seconds else None


def _write_weights(writer: SummaryWriter, run: TrainingRun, files: Path) -> list[str]:
    """Histograms of the existing checkpoints, at their epochs."""
    notes: list[str] = []
    written: set[int] = set()
    for name in CHECKPOINTS:
        file = files / name
        if not file.is_file():
            continue
        try:
            with safe_open(file, "numpy") as tensors:
                epoch = int((tensors.metadata() or {})["epoch"])
                if epoch in written:
                    continue
                written.add(epoch)
                weights = {key: tensors.get_tensor(key) for key in tensors.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            notes.append(f"{file}: no histograms: it cannot be read ({error})")
            continue
        for key, values in weights.items():
            finite = values[np.isfinite(values)] if values.dtype.kind == "f" else ()
            if len(finite):
                writer.add_histogram(f"weights/{key}", finite, epoch, bins=BINS)
            if values.dtype.kind == "f" and len(finite) < values.size:
                lost = values.size - len(finite)
                notes.append(f"{file}: {lost} of {values.size} values of {key} are not finite")
    return notes


def _blank(shape: Sequence[int]) -> torch.Tensor:
    """A sample of that shape: an image, or tokens."""
    import torch

    return torch.zeros(1, *shape, dtype=torch.float32 if len(shape) == 3 else torch.int64)


def _write_graph(writer: SummaryWriter, module: nn.Module, shape: Sequence[int]) -> list[str]:
    """The graph of the model for one image; a note if it cannot be traced."""
    try:
        # torch prints the reason of a failure, which the note repeats, and warns about its tracer.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            writer.add_graph(copy.deepcopy(module), _blank(shape))
    except Exception as error:  # whatever a user's module raises during tracing
        reason = str(error).strip().splitlines()[:1]
        return [f"no graph of the model: {type(error).__name__}: {' '.join(reason)}"]
    return []


# ---------------------------------------------------------------- files and pictures


@contextlib.contextmanager
def _log_writer(place: Path) -> Iterator[SummaryWriter]:
    """A writer into that folder, from which golow's earlier logs are removed. Raises `GolowError`
    without TensorBoard, or when the folder cannot be written."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise GolowError(
            "TensorBoard logs need the package tensorboard, which is not installed",
            "pip install 'golow[tensorboard]'",
        ) from error
    with writing(place, "free some space or name another folder with --tensorboard."):
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        with SummaryWriter(str(place), filename_suffix=SUFFIX, max_queue=1000) as writer:
            yield writer


def _picture(figure: Figure) -> np.ndarray:
    """The figure as uint8 [height, width, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with drawing():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]
