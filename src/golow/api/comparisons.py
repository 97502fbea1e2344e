"""Comparisons for Python users, and the choices behind them. The programs return plain records;
only this package and the commands combine them with reports. Imports happen in the call that needs
them, so that reading a record does not need PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

from golow.api.frame import frame
from golow.api.line import about, count, line
from golow.api.options import with_options
from golow.api.partial import InterruptedWithResult, keeping
from golow.api.progress import shown_progress
from golow.api.quantizing import (
    RULES,
    QuantizationResult,
    quantization_beside,
    quantized_first,
    require_calibration,
)
from golow.observer import Observer
from golow.programs.comparison import store
from golow.records.comparison import Comparison, Run
from golow.records.errors import GolowError
from golow.records.quantization import QuantizationRule
from golow.records.workload import Device, Mode, Optimizer, Precision
from golow.storage.scratch import scratch_folder
from golow.worker.cores import threads_of_rank
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from golow.workload.request import Request, WorkloadOptions

if TYPE_CHECKING:
    import pandas
    from torch import nn

    from golow.api.explained_module import ExplainedModule
    from golow.compiled.handed_over import HandedOver
    from golow.levels.choices import Choice
    from golow.programs.life.life_record import LifeCycle
    from golow.workload.request import Inputs


class LifeResult(NamedTuple):
    """Life cycle measured by `compare` with ``life=True``: the record, and methods to show it."""

    cycle: LifeCycle

    def table(self) -> None:
        """Print the stages, the level to use for each number of iterations, and the shortcuts
        tried."""
        from golow.report.life.table import render

        render(self.cycle)

    def __repr__(self) -> str:
        return line(self, about(self.cycle.workload), count(len(self.cycle.levels), "level"))

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.life.table import render
        from golow.report.notebook import as_html

        return as_html(lambda console: render(self.cycle, console))

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw the figure into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.life.figure import write_figures

        return write_figures(self.cycle, Path(folder))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per life; times in seconds, sizes in bytes. Needs ``pip install
        golow[pandas]``."""
        from golow.report.life.export import life_rows

        return frame(life_rows(self.cycle))


class Result(NamedTuple):
    """Result of `compare`: the record, with methods to print, save and use it. life: the life
    cycle, if it was measured. request: the request that was compared; None for a loaded record.
    quantization: the distance of the network from the original, if `compare` quantised it."""

    comparison: Comparison
    life: LifeResult | None = None
    request: Request | None = None
    quantization: QuantizationResult | None = None

    def table(self) -> None:
        """Print the table and the advice, and the life cycle if there is one."""
        from golow.report.comparison.table import render

        render(self.comparison)
        for beside in (self.life, self.quantization):
            if beside is not None:
                beside.table()

    def __repr__(self) -> str:
        return line(
            self, about(self.comparison.workload), count(len(self.comparison.runs), "level")
        )

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.comparison.formats import document

        parts = [part._repr_html_() for part in (self.life, self.quantization) if part is not None]
        return document(self.comparison, "html") + "".join(parts)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per level; times in seconds, sizes in bytes. Needs ``pip install
        golow[pandas]``."""
        return frame(store.to_rows(self.comparison))

    def report(self, file: str | Path) -> Path:
        """Write one HTML page that shows everything and contains the record."""
        from golow.report.html_report import write_report

        with scratch_folder() as folder:
            return write_report([self.save(folder)], Path(file))

    def save(self, folder: str | Path) -> Path:
        """Write the records into a new folder under this one; returns that folder."""
        written = store.save(self.comparison, Path(folder))
        if self.life is not None:
            from golow.programs.life import store as life_store
            from golow.report.life.export import write_tables

            life_store.save(self.life.cycle, written)
            write_tables(self.life.cycle, written)
        if self.quantization is not None:
            self.quantization.save_beside(written)
        return written

    def compile(
        self,
        model: nn.Module | None = None,
        inputs: Inputs | None = None,
        *,
        level: str | None = None,
        cache: Path | None = None,
        observer: Observer | None = None,
        quiet: bool = False,
    ) -> ExplainedModule | HandedOver:
        """Return the module at the recommended level as a callable, as `golow.compile` does, with
        the precision and the threads of the comparison.

        model, inputs: compile these instead of those compared. A loaded record needs them, unless
        golow can build its model by name. level: another level that matched. Raises `GolowError`
        for a level that did not match, was not compared or cannot be called from Python, and for a
        comparison of training steps.
        """
        from golow.api.handing_over import compile_result

        return compile_result(
            self.comparison,
            self.request,
            model,
            inputs,
            level=level,
            cache=cache,
            observer=observer,
            quiet=quiet,
        )

    def run(self, level: str) -> Run:
        """Return the record of one level; raises KeyError for one that did not take part."""
        for run in self.comparison.runs:
            if run.level == level:
                return run
        raise KeyError(level)


class Interrupted(InterruptedWithResult):
    """Raised after Ctrl-C; ``result`` has the partial results."""

    result: Result


@with_options(WorkloadOptions, Request)
def compare(
    model: str | nn.Module,
    example_inputs: Inputs | None = None,
    *,
    levels: Sequence[str] | None = None,
    workers: Mapping[str, str | Sequence[str]] | None = None,
    optimizer: Optimizer | None = None,
    threads: int | None = None,
    ranks: int = 1,
    precision: Precision | QuantizationRule = "default",
    calibrate: str | None = None,
    cold: bool = False,
    interval: float = 0.02,
    time_limit: float = 60.0,
    allow_differs: bool = False,
    locate: bool = False,
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
    **workload: Unpack[WorkloadOptions],
) -> Result:
    """Run the model at every level, prove that the levels agree, and measure what each costs.

    model: a name of the zoo, ``hf:NAME``, ``timm:NAME``, ``file.py:Name``, ``package.module:name``,
    ``file.pt2`` or a module. example_inputs: a tensor, a tuple of tensors or a mapping of them by
    the names of the forward pass, with the batch dimension first, for models that do not take
    images; ``targets`` likewise for the loss. levels: names that `golow levels` lists; by default
    all that can run here. workers: commands of your own worker programs, by name. interval: target
    width of each ratio's 95% interval, relative to the ratio. time_limit: seconds of racing, or up
    to twice that if five rounds take longer. threads: per level; by default one per physical core,
    and for each rank its share. ranks: number of processes that train together, each on its own
    batch, and on its own GPU. pretrained, download, phase: as `--pretrained`, `--download` and
    `--phase` of the command, for ``hf:`` and ``timm:``. device: ``cpu`` or ``cuda``. precision: of
    every level; ``int8``, ``fp8``, ``int8-weights``, ``int4-weights`` and
    ``fp8-weights`` quantise the network first, as
    `quantize` does, with samples of the data set ``calibrate``; the levels are then compared with
    the quantised network. cold: empty the GPU's L2 before each timed iteration. locate: if a level
    differs, find the first operation whose result is off. by_layer: also time each level step by
    step after the race. brief: for one of many comparisons: measures a GPU's energy over less time
    and omits copies. life: also measure the life cycle of every level that matches, in life_rounds
    rounds; life_cold: also with empty caches, which builds everything again. turn: place of this
    comparison among several that share a GPU. quiet: show no progress. observer: receives progress
    events instead.

    Raises `GolowError` for errors that the caller can fix, `ErrorWithResult` if such an error
    occurs after the race, and `Interrupted` with partial results on Ctrl-C. A failure of a level is
    recorded as its result.
    """
    from golow.programs.comparison.compare import compare as run
    from golow.programs.comparison.settings import ComparisonSettings
    from golow.programs.life.settings import LifeSettings, require_rounds

    request = Request(
        model,
        example_inputs,
        optimizer=optimizer or Optimizer(),
        threads=threads_of_rank(ranks) if threads is None else threads,
        ranks=ranks,
        precision="default" if precision in RULES else cast(Precision, precision),
        **workload,
    )
    require_calibration(precision, calibrate)
    settings = ComparisonSettings(
        levels=levels,
        workers=workers or {},
        cold=cold,
        interval=interval,
        time_limit=time_limit,
        allow_differs=allow_differs,
        locate=locate,
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
        if ranks != 1:
            raise GolowError(
                "--life measures one process", "leave out --life, or leave out --ranks and --gpus."
            )
        if turn is not None and turn.is_shared:
            raise GolowError("life=True needs an exclusive GPU", "drop turn=.")
    with shown_progress("comparison", observer, quiet) as display:
        made = quantized_first(request, precision, calibrate, cache, display)
        request = request if made is None or made.request is None else made.request
        result = Result(run(request, settings, display), request=request, quantization=made)
    if result.comparison.race.stopped_because == "interrupted":
        raise Interrupted(result)
    if life:
        from golow.programs.life.cycle import life_cycle

        with keeping(result), shown_progress("comparison", observer, quiet) as display:
            cycle = life_cycle(request, living, result.comparison, display)
        result = result._replace(life=LifeResult(cycle))
        if cycle.interrupted:
            raise Interrupted(result)
    return result


def choices(
    *, level: str | None = None, mode: Mode | None = None, device: Device | None = None
) -> tuple[Choice, ...]:
    """List the settings that frameworks, libraries and the system choose by default, with
    alternatives.

    level, mode, device: only the choices in effect there. Raises `GolowError` for an unknown word.
    """
    from golow.levels.choices.listing import listed

    return listed(level=level, mode=mode, device=device)


def load(place: str | Path) -> Result:
    """Load the result of `compare` from the folder of a record or its ``comparison.json``; older
    formats are upgraded. The result has the life cycle if there is one.

    Raises `GolowError` for a folder without a comparison.
    """
    from golow.programs.life import store as life_store

    comparison = store.load(place)
    folder = Path(place).parent if Path(place).name == "comparison.json" else Path(place)
    life = LifeResult(life_store.load(folder)) if life_store.FILE.is_at(folder) else None
    return Result(comparison, life, quantization=quantization_beside(folder))


def load_life(place: str | Path) -> LifeResult:
    """Load the life cycle from the folder of a comparison, or from its ``life.json``."""
    from golow.programs.life import store as life_store

    return LifeResult(life_store.load(Path(place)))
