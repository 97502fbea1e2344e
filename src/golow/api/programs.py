"""Comparisons, profiles, trainings and studies, as Python users call them.

The programs return plain records. Only this package and the commands join them with reports, and
import what a call needs when it is called: PyTorch is not needed to read a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from golow.api.frame import frame
from golow.api.progress import shown_progress
from golow.comparison import store
from golow.measure.cores import default_threads
from golow.observer import Observer
from golow.record import Comparison, Device, GolowError, Mode, Optimizer, Phase, Precision, Run
from golow.study.attempt import PROGRAM
from golow.study.cells import key
from golow.study.observer import StudyObserver
from golow.study.record import CellRecord, Study
from golow.study.run import STUDIES, find_study
from golow.study.run import run_study as measure_study
from golow.study.settings import StudySettings
from golow.study.state import StudyState, read_state
from golow.study.store import StudyFolder
from golow.training import store as training_store
from golow.training.observer import TrainingObserver
from golow.training.record import Augmentation, Schedule, Training
from golow.training.request import TrainingRequest
from golow.worker.limits import Limits
from golow.worker.turn import Turn

if TYPE_CHECKING:
    import pandas
    from torch import Tensor, nn

    from golow.data.voc import VocLabel
    from golow.levels.choices import Choice
    from golow.life.record import LifeCycle
    from golow.profiling.difference import ProfileDifference
    from golow.profiling.record import Profile
    from golow.training.train import TrainingOutcome
    from golow.workload.request import Inputs, Loss


# ---------------------------------------------------------------- comparisons


class LifeResult(NamedTuple):
    """The life cycle of `compare` with ``life=True``: the record, and ways to look at it."""

    cycle: LifeCycle

    def table(self) -> None:
        """Print the stages, the level to use for so many iterations, and what was tried."""
        from golow.report.life.table import render

        render(self.cycle)

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw the figure into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.life.figure import write_figures

        return write_figures(self.cycle, Path(folder))

    def to_pandas(self) -> pandas.DataFrame:
        """A row a life; times in seconds, sizes in bytes. Needs ``pip install golow[pandas]``."""
        from golow.report.life.export import life_rows

        return frame(life_rows(self.cycle))


class Result(NamedTuple):
    """What `compare` returns: the record, and ways to look at it. life: if it was asked for."""

    comparison: Comparison
    life: LifeResult | None = None

    def table(self) -> None:
        """Print the table and the advice, and the life cycle if there is one."""
        from golow.report.comparison.table import render

        render(self.comparison)
        if self.life is not None:
            self.life.table()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from golow.report.comparison.formats import document

        return document(self.comparison, "html")

    def to_pandas(self) -> pandas.DataFrame:
        """A row a level; times in seconds, sizes in bytes. Needs ``pip install golow[pandas]``."""
        return frame(store.to_rows(self.comparison))

    def save(self, folder: str | Path) -> Path:
        """Write the records into a new folder under this one; returns that folder."""
        written = store.save(self.comparison, Path(folder))
        if self.life is not None:
            from golow.life import store as life_store
            from golow.report.life.export import write_tables

            life_store.save(self.life.cycle, written)
            write_tables(self.life.cycle, written)
        return written

    def run(self, level: str) -> Run:
        """The record of one level; raises KeyError for one that did not take part."""
        for run in self.comparison.runs:
            if run.level == level:
                return run
        raise KeyError(level)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came; ``result`` holds what had been measured by then."""

    def __init__(self, result: Result) -> None:
        super().__init__("interrupted")
        self.result = result


def compare(
    model: str | nn.Module,
    example_inputs: Inputs | None = None,
    *,
    levels: Sequence[str] | None = None,
    workers: Mapping[str, str | Sequence[str]] | None = None,
    mode: Mode = "infer",
    batch: int | None = None,
    resolution: int | None = None,
    sequence: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    channels: int | None = None,
    classes: int | None = None,
    weights: str | Path | None = None,
    initialisation: str | None = None,
    loss: str | Loss | None = None,
    targets: Tensor | Sequence[Tensor] | None = None,
    optimizer: Optimizer | None = None,
    seed: int = 0,
    threads: int | None = None,
    device: Device = "cpu",
    precision: Precision = "default",
    pretrained: bool | None = None,
    download: bool = False,
    phase: Phase = "",
    cold: bool = False,
    interval: float = 0.02,
    time_limit: float = 60.0,
    allow_differs: bool = False,
    by_layer: bool = False,
    brief: bool = False,
    life: bool = False,
    life_rounds: int = 3,
    life_cold: bool = True,
    cache: Path | None = None,
    limits: Limits | None = None,
    turn: Turn | None = None,
    quiet: bool = False,
    observer: Observer | None = None,
) -> Result:
    """Run the model at every level, prove that they agree, measure what each costs.

    model: a name of the zoo, ``hf:NAME``, ``timm:NAME``, ``file.py:Name``,
    ``package.module:name``, ``file.pt2`` or a module. example_inputs: a tensor, a tuple of tensors
    or a mapping of them by the names of the forward pass, with the batch dimension first, for
    models that do not take images; ``targets`` likewise for the loss. levels: names as `golow
    levels` lists them, all that can run here unless given. workers: commands of your own that
    speak the protocol, by name. interval: relative width to which each ratio's 95% interval is
    narrowed, within time_limit
    seconds of racing, or five times that where five rounds take longer. threads: of every level;
    one a physical core unless given. pretrained, download, phase: as `--pretrained`, `--download`
    and `--phase` of the command, for ``hf:`` and ``timm:``. device and precision: of every level; a
    GPU is ``cuda``. cold:
    empty the GPU's L2 before each timed iteration. by_layer: after the race, time each level step
    by step too. brief: for one of many comparisons; energy on a GPU is taken over less time, copies
    to it are not looked at. life: afterwards, measure the life cycle of every level that matches,
    in so many rounds; life_cold: also from empty caches, which builds everything again. turn: where
    several comparisons share a GPU, this one's place among them. quiet: show no progress; observer:
    is told of it instead.

    Raises `GolowError` for what the caller can mend, `Interrupted` (with what was measured) on
    Ctrl-C. What goes wrong in a level is that level's result.
    """
    from golow.comparison.compare import compare as run
    from golow.comparison.settings import ComparisonSettings
    from golow.life.cycle import life_cycle
    from golow.life.settings import LifeSettings, require_rounds
    from golow.workload.request import Request

    request = Request(
        model,
        example_inputs,
        mode=mode,
        batch=batch,
        resolution=resolution,
        sequence=sequence,
        input_shape=input_shape,
        channels=channels,
        classes=classes,
        weights=weights,
        initialisation=initialisation,
        loss=loss,
        targets=targets,
        optimizer=optimizer or Optimizer(),
        seed=seed,
        threads=threads or default_threads(),
        device=device,
        precision=precision,
        pretrained=pretrained,
        download=download,
        phase=phase,
    )
    settings = ComparisonSettings(
        levels=levels,
        workers=workers or {},
        cold=cold,
        interval=interval,
        time_limit=time_limit,
        allow_differs=allow_differs,
        by_layer=by_layer,
        brief=brief,
        cache=cache,
        limits=limits,
        turn=turn,
    )
    living = LifeSettings(
        levels=levels,
        workers=workers or {},
        rounds=life_rounds,
        cold=life_cold,
        cache=cache,
        limits=limits,
    )
    if life:
        require_rounds(life_rounds)
        if turn is not None and turn.is_shared:
            raise GolowError("lives cannot be measured while others use the GPU", "leave out turn.")
    with shown_progress("comparison", observer, quiet) as display:
        result = Result(run(request, settings, display))
    if result.comparison.race.stopped_because == "interrupted":
        raise Interrupted(result)
    if life:
        with shown_progress("comparison", observer, quiet) as display:
            cycle = life_cycle(request, living, result.comparison, display)
        result = result._replace(life=LifeResult(cycle))
        if cycle.interrupted:
            raise Interrupted(result)
    return result


def choices(
    *, level: str | None = None, mode: Mode | None = None, device: Device | None = None
) -> tuple[Choice, ...]:
    """What frameworks, libraries and the system decide unless the user does, with the alternatives.

    level, mode, device: only the choices in force there. Raises `GolowError` for an unknown word.
    """
    from golow.levels.choices.listing import listed

    return listed(level=level, mode=mode, device=device)


def load(place: str | Path) -> Result:
    """What `compare` returned, from the folder of a record or its ``comparison.json``; older
    formats are brought up. It has the life cycle if there is one.

    Raises `GolowError` for a folder without a comparison.
    """
    from golow.life import store as life_store

    comparison = store.load(place)
    folder = Path(place).parent if Path(place).name == "comparison.json" else Path(place)
    life = LifeResult(life_store.load(folder)) if life_store.has_life(folder) else None
    return Result(comparison, life)


def load_life(place: str | Path) -> LifeResult:
    """The life cycle in the folder of a comparison, or in its ``life.json``."""
    from golow.life import store as life_store

    return LifeResult(life_store.load(Path(place)))


# ---------------------------------------------------------------- profiles


class ProfileResult(NamedTuple):
    """What `profile` returns: one record a precision, and ways to look at them."""

    profiles: tuple[Profile, ...]

    def table(self, *, by: str = "operator", sort: str = "time", top: int = 10) -> None:
        """Print where a step's time goes, and the first operators, kernels or blocks of memory of
        every level, or its layers below the roofline, or the layers of all."""
        from golow.report.profiling.table import render

        render(self.profiles, by=by, sort=sort, top=top)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from golow.report.notebook import as_html
        from golow.report.profiling.table import render

        return as_html(lambda console: render(self.profiles, console=console))

    def diff(self, other: ProfileResult) -> ProfileDiff:
        """What changed from this profile to the other, for every level and precision in both."""
        from golow.profiling.difference import difference

        return ProfileDiff(difference(self.profiles, other.profiles))

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw all figures into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.profiling.figures import write_figures

        return write_figures(self.profiles, Path(folder))

    def tensorboard(self, folder: str | Path) -> None:
        """Write TensorBoard's logs into the folder. Needs ``pip install golow[tensorboard]``."""
        from golow.report.profiling.tensorboard import write_tensorboard

        write_tensorboard(self.profiles, Path(folder))


class ProfileDiff(NamedTuple):
    """What `ProfileResult.diff` returns: the record, and its table."""

    difference: ProfileDifference

    def table(
        self,
        *,
        by: str = "operator",
        top: int = 10,
        names: tuple[str, str] = ("before", "after"),
    ) -> None:
        """Print how a step's time changed, and the operators, kernels or layers that changed most.
        names: of the two profiles."""
        from golow.report.profiling.difference import render_difference
        from golow.report.profiling.table import require_view

        require_view(by, "time")
        render_difference(self.difference, names, by=by, top=top)


def load_profile(place: str | Path) -> ProfileResult:
    """The profile of a folder that ``golow profile --save`` wrote, or of its ``profile.json``."""
    from golow.profiling.store import load

    return ProfileResult(load(Path(place)))


def profile(
    model: str | nn.Module,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    levels: Sequence[str] | None = None,
    workers: Mapping[str, str | Sequence[str]] | None = None,
    mode: Mode = "infer",
    batch: int | None = None,
    resolution: int | None = None,
    sequence: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    channels: int | None = None,
    classes: int | None = None,
    weights: str | Path | None = None,
    initialisation: str | None = None,
    loss: str | Loss | None = None,
    targets: Tensor | Sequence[Tensor] | None = None,
    pretrained: bool | None = None,
    download: bool = False,
    phase: Phase = "",
    seed: int = 0,
    threads: int | None = None,
    device: Device = "cpu",
    precisions: Sequence[Precision] = ("default",),
    steps: int = 5,
    time_limit: float = 10.0,
    by_shape: bool = False,
    way_down: str | None = None,
    folder: str | Path | None = None,
    cache: Path | None = None,
    quiet: bool = False,
    observer: Observer | None = None,
) -> ProfileResult:
    """Show where a step's time and memory go, at every level.

    The workload and levels are those of `compare`. precisions: one profile each. steps: profiled
    steps of each level. time_limit: of the race without a profiler, in seconds. by_shape: tell
    operators apart by the shapes of their inputs. way_down: instead of a profile, what stands
    between the call of the layer with this path and the vendor's routine. folder: a new one for
    the record, its tables as CSV and the traces; with several precisions, the traces of each have a
    folder of their own in it.

    Raises `GolowError` for what the caller can mend. What goes wrong in a level is that level's
    result.
    """
    from golow.profiling import store as profile_store
    from golow.profiling.profile import ProfileSettings
    from golow.profiling.profile import profile as run
    from golow.profiling.way_down.way_down import WaySettings
    from golow.profiling.way_down.way_down import way_down as run_way_down
    from golow.report.profiling.export import write_tables
    from golow.workload.request import Request

    found = []
    for precision in precisions:
        request = Request(
            model,
            example_inputs,
            mode=mode,
            batch=batch,
            resolution=resolution,
            sequence=sequence,
            input_shape=input_shape,
            channels=channels,
            classes=classes,
            weights=weights,
            initialisation=initialisation,
            loss=loss,
            targets=targets,
            pretrained=pretrained,
            download=download,
            phase=phase,
            seed=seed,
            threads=threads or default_threads(),
            device=device,
            precision=precision,
        )
        traces = None
        if folder is not None:
            traces = Path(folder) / precision if len(precisions) > 1 else Path(folder)
            profile_store.make_folder(traces)
        if way_down is not None:
            way = WaySettings(
                layer=way_down,
                levels=levels,
                workers=workers or {},
                time_limit=time_limit,
                cache=cache,
            )
            with shown_progress("comparison", observer, quiet) as display:
                found.append(run_way_down(request, way, display))
            continue
        settings = ProfileSettings(
            levels=levels,
            workers=workers or {},
            steps=steps,
            time_limit=time_limit,
            by_shape=by_shape,
            traces=traces,
            cache=cache,
        )
        with shown_progress("comparison", observer, quiet) as display:
            found.append(run(request, settings, display))
    if folder is not None:
        profile_store.save(tuple(found), Path(folder))
        write_tables(found, Path(folder))
    return ProfileResult(tuple(found))


# ---------------------------------------------------------------- trainings


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
        from golow.report.training.table import render

        render(self.training)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from golow.report.notebook import as_html
        from golow.report.training.table import render

        return as_html(lambda console: render(self.training, console))

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw all figures into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.training.curves import write_figures

        return write_figures(self.training, Path(folder))

    def tensorboard(self, folder: str | Path) -> tuple[str, ...]:
        """Write TensorBoard's logs into the folder; returns notes on what could not be written.
        Needs ``pip install golow[tensorboard]``."""
        from golow.report.training.tensorboard import write_tensorboard
        from golow.workload.source import build_module

        source = next((run.workload.source for run in self.training.runs), None)
        module = build_module(source) if source is not None and source.kind != "pickle" else None
        return write_tensorboard(self.training, self.folder, Path(folder), module)

    def to_pandas(self) -> pandas.DataFrame:
        """A row an epoch; times in seconds, sizes in bytes. Needs ``pip install golow[pandas]``."""
        from golow.report.training.export import epoch_rows

        return frame(epoch_rows(self.training))


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C came; ``result`` holds what had been trained by then, and `resume` goes on."""

    def __init__(self, result: TrainingResult) -> None:
        super().__init__("interrupted")
        self.result = result


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
    sequence: int | None = None,
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
    quiet: bool = False,
    observer: TrainingObserver | None = None,
) -> TrainingResult:
    """Train the model at every level on the same batches; say whether they trained the same.

    model: a name of the zoo, ``file.py:Name``, ``package.module:name`` or a module that takes
    [N, C, H, W] and gives one score a class; for a text it takes token ids [N, sequence] and gives
    [N, sequence, 256]. dataset: a name that `golow data list` shows, or
    ``folder:PATH``. levels: eager, torchscript, libtorch and the vendor's unless given; eager is
    always first. workers: commands of your own that speak the protocol, by name. seeds: each
    decides the initial weights and the order of the samples. batch: 128 unless given, or all
    samples where there are fewer. resolution: side of the pictures, the data set's own unless given
    or too small for the model. sequence: tokens of a sample of a text. initialisations: names of
    golow's, or ``own`` for what the model's constructor does. out: the folder in which the training
    gets a folder of its own.

    Raises `GolowError` for what the caller can mend, `TrainingInterrupted` on Ctrl-C. What goes
    wrong in a level is that level's result.
    """
    from golow.training.train import train as run

    request = TrainingRequest(
        model=model,
        dataset=dataset,
        levels=levels,
        workers=workers or {},
        epochs=epochs,
        seeds=seeds,
        batch=batch,
        resolution=resolution,
        sequence=sequence,
        initialisations=initialisations,
        optimizer=optimizer or Optimizer(),
        schedule=schedule or Schedule(),
        augmentation=augmentation or Augmentation(),
        device=device,
        precision=precision,
        threads=threads,
        data_root=data_root,
        voc_label=voc_label,
        allow_differs=allow_differs,
    )
    with shown_progress("training", observer, quiet) as display:
        outcome = run(request, Path(out), display, cache=cache, limits=limits)
    return _exported(outcome)


def resume(
    folder: str | Path,
    model: nn.Module | None = None,
    *,
    cache: Path | None = None,
    limits: Limits | None = None,
    quiet: bool = False,
    observer: TrainingObserver | None = None,
) -> TrainingResult:
    """Go on with the training in that folder, each run after its last whole epoch.

    What had failed is tried again. model: the module, where the training began with a live one.
    Raises as `train` does; also where the model or the data set is not what it was.
    """
    from golow.training.train import resume as run

    with shown_progress("training", observer, quiet) as display:
        outcome = run(Path(folder), model, display, cache=cache, limits=limits)
    return _exported(outcome)


def load_training(place: str | Path) -> Training:
    """The training in that folder, as far as it has come. Raises `GolowError` for any other."""
    return training_store.load(place)


def _exported(outcome: TrainingOutcome) -> TrainingResult:
    """Write the tables of a training into its folder; raises `TrainingInterrupted` after Ctrl-C."""
    from golow.report.training.export import write_export

    write_export(outcome.training, outcome.folder)
    result = TrainingResult(outcome.training, outcome.folder)
    if outcome.interrupted:
        raise TrainingInterrupted(result)
    return result


# ---------------------------------------------------------------- studies


class StudyResult(StudyState):
    """What `run_study` returns: a study as far as it has come, in one environment.

    asked: every cell, in the order of measuring; records: those that have one, by key.
    environments: of all cells in the folder, by name, and how many each has.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from golow.report.notebook import as_html
        from golow.report.study.rows import Measured, rows_of
        from golow.report.study.table import render_grid

        cells = [
            Measured(record, self.comparison(record) if record.state == "done" else None)
            for record in self.records.values()
        ]
        return as_html(lambda console: render_grid(rows_of(self.study.name, cells), console))

    def comparison(self, record: CellRecord) -> Comparison:
        """What was measured in a cell that is done."""
        return StudyFolder(self.folder).comparison(record)

    def comparisons(self) -> Iterator[Comparison]:
        """Of all cells that are done, in the order of the study."""
        for cell in self.asked:
            record = self.records.get(key(cell))
            if record is not None and record.state == "done":
                yield self.comparison(record)


def run_study(
    study: str | Path | Study,
    *,
    device: Device | None = None,
    out: str | Path = STUDIES,
    jobs: int = 1,
    ray: str | None = None,
    skip: bool = True,
    budget: float | None = None,
    quiet: bool = False,
    observer: StudyObserver | None = None,
    program: Sequence[str] = PROGRAM,
) -> StudyResult:
    """Measure every cell of a study that has no record yet; what happens to a cell is its record.

    study: a name that `golow study list` lists, a TOML file, or a `Study`. device: instead of the
    study's own. out: the folder of studies, in which this one has its folder. jobs: so many cells
    at a time, on different GPUs or disjoint cores. ray: ``auto`` or the address of a Ray cluster,
    which then measures. skip: cells that are certain to need too much memory are not tried.
    budget: seconds after which no further cell is begun. program: what Python runs for a cell.

    Calling it again goes on: after an interruption the cell in flight is lost, and nothing else.
    Raises `GolowError` for what the caller can mend, such as a full disk.
    """
    settings = StudySettings(jobs=jobs, ray=ray, skip=skip, budget=budget, program=program)
    asked = find_study(study, Path(out), device)
    with shown_progress("study", observer, quiet) as display:
        return StudyResult(*measure_study(asked, Path(out), settings, display))


def load_study(folder: str | Path, environment: str | None = None) -> StudyResult:
    """The study in that folder, as far as it has come.

    environment: the name of the one whose cells are wanted; the one with the most cells unless
    given. Raises `GolowError` where there is no such study or environment.
    """
    return StudyResult(*read_state(Path(folder), environment))
