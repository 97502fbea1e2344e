"""Training at every level: the same bytes in the same order from the same start.

`train` reads as the table of contents: choose the levels, prepare the data, plan, prepare the
workload, and then what `session.py` does: train each level from each start, and judge.
What is found is on the disk before it is told, and `resume` goes on from there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from torch import nn

from golow.comparison import store
from golow.data.places import default_cache
from golow.data.voc import VocLabel
from golow.levels.ladder import Choice
from golow.levels.starter import Starter
from golow.record import Device, GolowError, Optimizer, Precision
from golow.report.training.export import epoch_rows, write_export
from golow.report.training.table import render
from golow.training import plan as training_plan
from golow.training import store as training_store
from golow.training.bundle import TrainingBundles
from golow.training.data import TrainingData, open_data
from golow.training.learner import Standing, TrainingObserver
from golow.training.record import Augmentation, Schedule, Training, TrainingPlan
from golow.training.session import Session
from golow.worker.limits import Limits
from golow.workload.source import build_module

if TYPE_CHECKING:
    import pandas


class TrainingResult(NamedTuple):
    """What `train` returns: the record, ways to look at it, and the folder that it lies in."""

    training: Training
    folder: Path

    @property
    def good(self) -> bool:
        """Whether no level failed, and none trained another network than eager."""
        training = self.training
        return not (
            any(run.failure or run.check.verdict in ("differs", "failed") for run in training.runs)
            or any(verdict.word == "differs" for verdict in training.verdicts)
        )

    def table(self) -> None:
        """Print the table and the verdicts."""
        render(self.training)

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw all figures into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.training.curves import write_figures

        return write_figures(self.training, Path(folder))

    def tensorboard(self, folder: str | Path) -> tuple[str, ...]:
        """Write TensorBoard's logs into the folder; returns notes on what could not be written.
        Needs ``pip install golow[tensorboard]``."""
        from golow.report.training.tensorboard import write_tensorboard

        source = next((run.workload.source for run in self.training.runs), None)
        module = build_module(source) if source is not None and source.kind != "pickle" else None
        return write_tensorboard(self.training, self.folder, Path(folder), module)

    def to_pandas(self) -> pandas.DataFrame:
        """A row an epoch; times in seconds, sizes in bytes. Needs ``pip install golow[pandas]``."""
        try:
            import pandas
        except ImportError as error:
            raise GolowError("pandas is not installed", "pip install 'golow[pandas]'") from error
        return pandas.DataFrame(epoch_rows(self.training))


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C came; ``result`` holds what had been trained by then, and `resume` goes on."""

    def __init__(self, result: TrainingResult) -> None:
        super().__init__("interrupted")
        self.result = result


class SilentTraining:
    """An observer that says nothing."""

    def stage(self, text: str) -> None:
        """Say nothing."""

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """Say nothing."""

    def counted(self, what: str, done: int, total: int) -> None:
        """Say nothing."""

    def trained(self, standing: Standing) -> None:
        """Say nothing."""


def train(
    model: str | nn.Module,
    *,
    dataset: str,
    levels: Sequence[str] | None = None,
    workers: Mapping[str, str | Sequence[str]] | None = None,
    epochs: int = 10,
    seeds: Sequence[int] = (0,),
    batch: int | None = None,
    resolution: int | None = None,
    initialisations: Sequence[str] | None = None,
    optimizer: Optimizer | None = None,
    schedule: Schedule | None = None,
    augmentation: Augmentation | None = None,
    device: Device = "cpu",
    precision: Precision = "default",
    threads: int | None = None,
    data_root: str | Path | None = None,
    voc_label: VocLabel = "first",
    out: str | Path = "runs",
    allow_differs: bool = False,
    cache: Path | None = None,
    limits: Limits | None = None,
    observer: TrainingObserver | None = None,
) -> TrainingResult:
    """Train the model at every level on the same batches; say whether they trained the same.

    model: a name of the zoo, ``file.py:Name``, ``package.module:name`` or a module that takes
    [N, C, H, W] and gives one score a class. dataset: a name that `golow data list` shows, or
    ``folder:PATH``. levels: eager, torchscript, libtorch and the vendor's unless given; eager is
    always first. workers: commands of your own that speak the protocol, by name. seeds: each
    decides the initial weights and the order of the samples. batch: 128 unless given, or all
    samples where there are fewer. resolution: side of the pictures, the data set's own unless given
    or too small for the model. initialisations: names of golow's, or ``own`` for what the model's
    constructor does. out: the folder in which the training gets a folder of its own.

    Raises `GolowError` for what the caller can mend, `TrainingInterrupted` on Ctrl-C. What goes
    wrong in a level is that level's result.
    """
    observer, cache = observer or SilentTraining(), cache or default_cache()
    own, schedule = dict(workers or {}), schedule or Schedule()
    augmentation = augmentation or Augmentation()
    initialisations = initialisations or [training_plan.usual_initialisation(model)]
    chosen = training_plan.choose(levels, own, device, precision)
    training_plan.require_possible(model, epochs, seeds, initialisations, schedule, augmentation)
    store.require_writable(Path(out))
    observer.stage("preparing the data")
    data = open_data(
        dataset,
        model if isinstance(model, str) else "",
        root=Path(data_root) if data_root else None,
        resolution=resolution,
        voc_label=voc_label,
        cache=cache,
        progress=observer.counted,
    )
    plan = training_plan.make_plan(
        model,
        data.facts,
        chosen,
        own,
        epochs=epochs,
        seeds=seeds,
        batch=batch,
        initialisations=initialisations,
        optimizer=optimizer or Optimizer(),
        schedule=schedule,
        augmentation=augmentation,
        device=device,
        precision=precision,
        threads=threads,
        data_root=data_root,
        voc_label=voc_label,
        allow_differs=allow_differs,
    )
    with _scratch() as scratch:
        observer.stage("preparing the workload")
        bundles = TrainingBundles(plan, model, data, scratch)
        plan, folder = training_store.create(plan, Path(out))
        session = Session(plan, data, bundles, folder, scratch, cache, Starter(limits), observer)
        return _finished(session, chosen)


def resume(
    folder: str | Path,
    model: nn.Module | None = None,
    *,
    cache: Path | None = None,
    limits: Limits | None = None,
    observer: TrainingObserver | None = None,
) -> TrainingResult:
    """Go on with the training in that folder, each run after its last whole epoch.

    What had failed is tried again. model: the module, where the training began with a live one.
    Raises as `train` does; also where the model or the data set is not what it was.
    """
    observer, cache = observer or SilentTraining(), cache or default_cache()
    folder = Path(folder)
    plan = training_store.read_plan(folder)
    if plan.live and model is None:
        raise GolowError(
            f"{plan.model} was a module of a running program, which no file holds",
            f"in Python: golow.resume({str(folder)!r}, model=the_module).",
        )
    chosen = training_plan.choose(
        [level for level in plan.levels if level not in plan.workers],
        plan.workers,
        plan.device,
        plan.precision,
    )
    observer.stage("preparing the data")
    data = open_data(
        plan.dataset.name,
        plan.model,
        root=Path(plan.data_root) if plan.data_root else None,
        resolution=plan.dataset.shape[1],
        voc_label=plan.voc_label,
        cache=cache,
        progress=observer.counted,
    )
    _require_same_data(plan, data)
    with _scratch() as scratch:
        observer.stage("preparing the workload")
        bundles = TrainingBundles(plan, model or plan.model, data, scratch)
        session = Session(plan, data, bundles, folder, scratch, cache, Starter(limits), observer)
        session.require_same_start()
        return _finished(session, chosen)


# ---------------------------------------------------------------- how it is done


def _finished(session: Session, chosen: Sequence[Choice]) -> TrainingResult:
    training, interrupted = session.run(chosen)
    write_export(training, session.folder)
    result = TrainingResult(training, session.folder)
    if interrupted:
        raise TrainingInterrupted(result)
    return result


def _require_same_data(plan: TrainingPlan, data: TrainingData) -> None:
    if msgspec.structs.replace(data.facts, source=plan.dataset.source) != plan.dataset:
        raise GolowError(
            f"the data set {plan.dataset.name} is not what it was when the training began",
            "put its files back as they were, or train anew.",
        )


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="golow-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
