"""Training runs for Python users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from golow.api.frame import frame
from golow.api.line import count, line
from golow.api.options import with_options
from golow.api.partial import InterruptedWithResult
from golow.api.progress import shown_progress
from golow.programs.training import store as training_store
from golow.programs.training.observer import TrainingObserver
from golow.programs.training.request import TrainingOptions, TrainingRequest
from golow.programs.training.training_record import Augmentation, Schedule, Training
from golow.records.workload import Optimizer
from golow.worker.time_limits import Limits

if TYPE_CHECKING:
    import pandas
    from torch import nn

    from golow.programs.training.train import TrainingOutcome


class TrainingResult(NamedTuple):
    """Result of `train`: the record, its folder, and methods to print, plot and export it."""

    training: Training
    folder: Path

    @property
    def good(self) -> bool:
        """True if no level failed, and none trained a different network from eager's."""
        training = self.training
        return not (
            any(run.failure or run.check.verdict in ("differs", "failed") for run in training.runs)
            or any(verdict.word == "differs" for verdict in training.verdicts)
        )

    def table(self) -> None:
        """Print the table and the verdicts."""
        from golow.report.training.table import render

        render(self.training)

    def __repr__(self) -> str:
        plan = self.training.plan
        what = f"{plan.model} on {plan.dataset.name}"
        return line(self, what, count(len(plan.levels), "level"), count(len(plan.seeds), "seed"))

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.notebook import as_html
        from golow.report.training.table import render

        return as_html(lambda console: render(self.training, console))

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw all figures into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.training.curves import write_figures

        return write_figures(self.training, Path(folder))

    def report(self, file: str | Path) -> Path:
        """Write one HTML page that shows the training run and contains its record."""
        from golow.report.html_report import write_report

        return write_report([self.folder], Path(file))

    def tensorboard(self, folder: str | Path, model: nn.Module | None = None) -> tuple[str, ...]:
        """Write TensorBoard's logs into the folder; returns notes on what could not be written.
        Needs ``pip install golow[tensorboard]``.

        model: for its graph. Not needed for a network of the zoo; golow does not run the code of
        other models, which a record only names.
        """
        from golow.report.training.tensorboard import write_tensorboard
        from golow.workload.source import build_module

        source = next((run.workload.source for run in self.training.runs), None)
        if model is None and source is not None and source.kind == "zoo":
            model = build_module(source)
        return write_tensorboard(self.training, self.folder, Path(folder), model)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per epoch; times in seconds, sizes in bytes. Needs ``pip install
        golow[pandas]``."""
        from golow.report.training.export import epoch_rows

        return frame(epoch_rows(self.training))


class TrainingInterrupted(InterruptedWithResult):
    """Raised after Ctrl-C; ``result`` has the epochs so far, and `resume` continues."""

    result: TrainingResult


@with_options(TrainingOptions, TrainingRequest)
def train(
    model: str | nn.Module,
    *,
    dataset: str,
    workers: Mapping[str, str | Sequence[str]] | None = None,
    optimizer: Optimizer | None = None,
    schedule: Schedule | None = None,
    augmentation: Augmentation | None = None,
    out: str | Path = "runs",
    cache: Path | None = None,
    limits: Limits | None = None,
    quiet: bool = False,
    observer: TrainingObserver | None = None,
    **options: Unpack[TrainingOptions],
) -> TrainingResult:
    """Train the model at every level on the same batches, and check that the networks are the same.

    model: a name of the zoo, ``file.py:Name``, ``package.module:name`` or a module that takes [N,
    C, H, W] and returns one score per class; for a text it takes token ids [N, sequence] and
    returns [N, sequence, 256]. dataset: a name that `golow data list` shows, or ``folder:PATH``.
    levels: by default eager, torchscript, libtorch and the vendor's; eager is always first.
    workers: commands of your own worker programs, by name. seeds: each determines the initial
    weights and the order of the samples. batch: 128 by default, or all samples if there are fewer.
    resolution: side of the images; by default the data set's, unless it is too small for the model.
    sequence: tokens in a sample of a text. initialisations: names of golow's initialisations, or
    ``own`` for the constructor's. out: folder in which golow creates a folder for this run.

    Raises `GolowError` for errors that the caller can fix, and `TrainingInterrupted` on Ctrl-C. A
    failure of a level is recorded as its result.
    """
    from golow.programs.training.train import train as run

    request = TrainingRequest(
        model=model,
        dataset=dataset,
        workers=workers or {},
        optimizer=optimizer or Optimizer(),
        schedule=schedule or Schedule(),
        augmentation=augmentation or Augmentation(),
        **options,
    )
    with shown_progress("training", observer, quiet) as display:
        outcome = run(request, Path(out), display, cache=cache, limits=limits)
    return _exported(outcome)


def resume(
    folder: str | Path,
    model: nn.Module | None = None,
    *,
    trust: bool = False,
    cache: Path | None = None,
    limits: Limits | None = None,
    quiet: bool = False,
    observer: TrainingObserver | None = None,
) -> TrainingResult:
    """Resume the training run in that folder, each level after its last complete epoch; failed ones
    are tried again. model: the module, if the run began with a live module. trust: also run the
    code and commands that the record names if another user may have written it. Raises the errors
    of `train`, and `GolowError` if the model or the data set has changed.
    """
    from golow.programs.training.train import resume as run

    with shown_progress("training", observer, quiet) as display:
        outcome = run(Path(folder), model, display, trust=trust, cache=cache, limits=limits)
    return _exported(outcome)


def load_training(place: str | Path) -> TrainingResult:
    """Load the current result of `train` from that folder. Raises `GolowError` for any other
    folder."""
    return TrainingResult(training_store.load(place), Path(place))


def _exported(outcome: TrainingOutcome) -> TrainingResult:
    """Write the tables of a training run into its folder; raises `TrainingInterrupted` after
    Ctrl-C."""
    from golow.report.training.export import write_export

    write_export(outcome.training, outcome.folder)
    result = TrainingResult(outcome.training, outcome.folder)
    if outcome.interrupted:
        raise TrainingInterrupted(result)
    return result
