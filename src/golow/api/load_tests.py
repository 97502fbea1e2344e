"""Load tests for Python users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from golow.api.frame import frame
from golow.api.line import about, count, line
from golow.api.options import with_options
from golow.api.partial import InterruptedWithResult
from golow.api.progress import shown_progress
from golow.observer import Observer
from golow.programs.load import store
from golow.programs.load.load_record import LevelLoad, LoadTest
from golow.records.workload import Precision
from golow.storage.scratch import scratch_folder
from golow.worker.cores import default_threads
from golow.workload.request import Inputs, Request, WorkloadOptions

if TYPE_CHECKING:
    import pandas
    from torch import nn


class LoadTestResult(NamedTuple):
    """Result of `load_test`: the record, with methods to print, plot and save it."""

    test: LoadTest

    def table(self) -> None:
        """Print each scenario, and the highest rates."""
        from golow.report.load.table import render

        render(self.test)

    def __repr__(self) -> str:
        return line(self, about(self.test.workload), count(len(self.test.levels), "level"))

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.load.table import render
        from golow.report.notebook import as_html

        return as_html(lambda console: render(self.test, console))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per level, scenario and rate; times in seconds. Needs ``pip install
        golow[pandas]``."""
        from golow.report.load.export import rows

        return frame(rows(self.test))

    def report(self, file: str | Path) -> Path:
        """Write one HTML page that shows everything and contains the record."""
        from golow.report.html_report import write_report

        with scratch_folder() as folder:
            return write_report([self.save(folder)], Path(file))

    def save(self, folder: str | Path) -> Path:
        """Write the record and its table into a new folder under this one; returns that folder."""
        from golow.report.load.export import write_tables

        saved = store.save(self.test, Path(folder))
        write_tables(self.test, saved)
        return saved

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw all figures into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.load.figure import write_figures

        return write_figures(self.test, Path(folder))

    def level(self, name: str) -> LevelLoad:
        """Return the record of one level, such as ``onednn``, or ``onednn x2`` with two contexts;
        raises KeyError for one that was not tested."""
        for level in self.test.levels:
            if level.label == name:
                return level
        raise KeyError(name)


class LoadTestInterrupted(InterruptedWithResult):
    """Raised after Ctrl-C; ``result`` has the partial results."""

    result: LoadTestResult


@with_options(WorkloadOptions, Request)
def load_test(
    model: str | nn.Module,
    example_inputs: Inputs | None = None,
    *,
    levels: Sequence[str] | None = None,
    scenarios: Sequence[str] | None = None,
    latency: float | None = None,
    percentile: float = 99.0,
    rates: Sequence[float] = (),
    ttft: float | None = None,
    tpot: float | None = None,
    prompt: int | tuple[int, int] | None = None,
    tokens: int | None = None,
    max_batch: int | None = None,
    delay: float = 0.002,
    contexts: int | Sequence[int] = 1,
    lengths: tuple[int, int] | None = None,
    seconds: float = 5.0,
    repeats: int = 3,
    patience: float = 10.0,
    url: str = "",
    threads: int | None = None,
    precision: Precision = "default",
    cache: Path | None = None,
    quiet: bool = False,
    observer: Observer | None = None,
    **workload: Unpack[WorkloadOptions],
) -> LoadTestResult:
    """Send requests to levels with MLPerf's LoadGen, and measure latency and rate of each. Needs
    ``pip install golow[load]``.

    Workload and levels are as in `compare`, for levels that `compile` supports. scenarios: some of
    ``single-stream``, ``multi-stream``, ``server`` and ``offline``; by default the first and the
    last, and ``server`` if there is a latency or a rate. latency: limit in seconds for this
    percentile of the requests (99 is 99%). rates: requests per second of the server scenario; by
    default the highest rate that meets the limit is searched. ttft, tpot, prompt, tokens: for a
    model that generates text (as in `generate`): limits in seconds for the time to the first token
    and for each later one at the percentile, tokens of a prompt (or of the shortest and the
    longest), and the number of tokens to generate. max_batch: largest number of samples in a batch
    (8; 1 for texts). delay: longest time in seconds that a request waits for others. contexts:
    number of batches that run at the same time; each level is tested with each of several numbers.
    lengths: tokens of the shortest and the longest sample, between which lengths are drawn; an
    example has the longest. seconds: duration of each run, which takes up to six times as long if
    the percentile needs more requests. repeats: rounds, in each of which every level runs once.
    patience: seconds without an answer after which golow gives up on a level. url: address of a
    service that runs the same model, tested over HTTP as the level ``http``; alone unless
    levels are named.

    Every level is checked first: all answers of LoadGen's accuracy mode must agree with float64 by
    the rule of `compare`. Raises `GolowError` for errors that the caller can fix, and
    `LoadTestInterrupted` with partial results on Ctrl-C. A failure of a level is recorded as its
    result.
    """
    from golow.programs.load import load, text_load
    from golow.programs.load.settings import LoadSettings
    from golow.programs.load.text_settings import text_plan

    request = Request(
        model,
        example_inputs,
        threads=default_threads() if threads is None else threads,
        precision=precision,
        **workload,
    )
    settings = LoadSettings(
        levels=levels,
        scenarios=scenarios,
        latency=latency,
        percentile=percentile,
        rates=rates,
        max_batch=max_batch,
        delay=delay,
        contexts=(contexts,) if isinstance(contexts, int) else tuple(contexts),
        lengths=lengths,
        seconds=seconds,
        repeats=repeats,
        patience=patience,
        url=url,
        texts=text_plan(prompt, tokens, ttft, tpot),
        cache=cache,
    )
    run = load.load_test if settings.texts is None else text_load.load_texts
    with shown_progress("comparison", observer, quiet) as display:
        result = LoadTestResult(run(request, settings, display))
    if result.test.interrupted:
        raise LoadTestInterrupted(result)
    return result


def load_load_test(place: str | Path) -> LoadTestResult:
    """Load the result in a folder that ``golow load`` wrote. Raises `GolowError` for any other
    folder."""
    return LoadTestResult(store.load(Path(place)))
