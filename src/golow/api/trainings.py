"""Trainings as Python users call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from golow.api.frame import frame
from golow.api.line import count, line
from golow.api.options import with_options
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
        """True if no level failed, and none trained another network than eager."""
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
        """Write one HTML page that shows the training and contains its record."""
        from golow.report.html_report import write_report

        return write_report([self.folder], Path(file))

    def tensorboard(self, folder: str | Path, model: nn.Module | None = None) -> tuple[str, ...]:
        """Write TensorBoard's logs into the folder; returns notes on what could not be written.
        Needs ``pip install golow[tensorboard]``.

        model: for its graph. A network of the zoo needs none; the code of another one, which a
        record only names, is not run.
        """
        from golow.report.training.tensorboard import write_tensorboard
        from golow.workload.source import build_module

        source = next((run.workload.source for run in self.training.runs), None)
        if model is None and source is not None and source.kind == "zoo":
            model = build_module(source)
        return write_tensorboard(self.training, self.folder, Path(folder), model)

    def to_pandas(self) -> pandas.DataFrame:
        """A row an epoch; times in seconds, sizes in bytes. Needs ``pip install golow[pandas]``."""
        from golow.report.training.export import epoch_rows

        return frame(epoch_rows(self.training))


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C came; ``result`` holds what had been trained by then, and `resume` goes on."""

    def __init__(self, result: TrainingResult) -> None:
        super().__init__("interrupted")
        self.result = result


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
    """Train the model at every level on the same batches; state whether they trained the same.

    model: a name of the zoo, ``file.py:Name``, ``package.module:name`` or a module that takes
    [N, C, H, W] and gives one score a class; for a text it takes token ids [N, sequence] and gives
    [N, sequence, 256]. dataset: a name that `golow data list` shows, or
    ``folder:PATH``. levels: eager, torchscript, libtorch and the vendor's unless given; eager is
    always first. workers: commands of your own that speak the protocol, by name. seeds: each
    decides the initial weights and the order of the samples. batch: 128 unless given, or all
    samples where there are fewer. resolution: side of the pictures, the data set's own unless given
    or too small for the model. sequence: tokens of a sample of a text. initialisations: names of
    golow's, or ``own`` for what the model's constructor does. out: the folder in which the training
    gets a separate folder.

    Raises `GolowError` for errors that the caller can fix, `TrainingInterrupted` on Ctrl-C. What
    goes wrong in a level is that level's result.
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
    """Go on with the training in that folder, each run after its last whole epoch.

    What had failed is tried again. model: the module, where the training began with a live one.
    trust: also run the code and commands that the record names if another user may have written it.
    Raises as `train` does; also where the model or the data set is not what it was.
    """
    from golow.programs.training.train import resume as run

    with shown_progress("training", observer, quiet) as display:
        outcome = run(Path(folder), model, display, trust=trust, cache=cache, limits=limits)
    return _exported(outcome)


def load_training(place: str | Path) -> TrainingResult:
    """Load the result of `train` from that folder, as far as the training has come. Raises
    `GolowError` for any other folder."""
    return TrainingResult(training_store.load(place), Path(place))


def _exported(outcome: TrainingOutcome) -> TrainingResult:
    """Write the tables of a training into its folder; raises `TrainingInterrupted` after Ctrl-C."""
    from golow.report.training.export import write_export

    write_export(outcome.training, outcome.folder)
    result = TrainingResult(outcome.training, outcome.folder)
    if outcome.interrupted:
        raise TrainingInterrupted(result)
    return result
