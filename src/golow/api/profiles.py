"""Profiles for Python users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from golow.api.line import about, count, line
from golow.api.options import with_options
from golow.api.partial import ErrorWithResult, InterruptedWithResult, keeping
from golow.api.progress import shown_progress
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.records.workload import Precision
from golow.storage.scratch import scratch_folder
from golow.worker.cores import threads_of_rank
from golow.workload.request import Request, WorkloadOptions, require_precision

if TYPE_CHECKING:
    from torch import Tensor, nn

    from golow.programs.profiling.difference import ProfileDifference
    from golow.programs.profiling.profile_record import Profile


class ProfileResult(NamedTuple):
    """Result of `profile`: one record per precision, with methods to print, plot and save them."""

    profiles: tuple[Profile, ...]

    def table(self, *, by: str = "operator", sort: str = "time", top: int = 10) -> None:
        """Print where a step's time goes, and the first operators, kernels or blocks of memory of
        every level, or its layers under the roofline, or the layers of all levels."""
        from golow.report.profiling.table import render

        render(self.profiles, by=by, sort=sort, top=top)

    def __repr__(self) -> str:
        levels = sum(len(profile.levels) for profile in self.profiles)
        return line(self, about(self.profiles[0].workload), count(levels, "profile"))

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.notebook import as_html
        from golow.report.profiling.table import render

        return as_html(lambda console: render(self.profiles, console=console))

    def diff(self, other: ProfileResult) -> ProfileDiff:
        """Compare with a later profile: the changes of every level and precision in both."""
        from golow.programs.profiling.difference import difference

        return ProfileDiff(difference(self.profiles, other.profiles))

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw all figures into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.profiling.figures import write_figures

        return write_figures(self.profiles, Path(folder))

    def report(self, file: str | Path) -> Path:
        """Write one HTML page that shows the profile and contains its record."""
        from golow.report.html_report import write_report

        with scratch_folder() as folder:
            return write_report([self.save(folder)], Path(file))

    def save(self, folder: str | Path) -> Path:
        """Write the record, without traces, into this folder; returns it."""
        from golow.programs.profiling import store

        store.save(self.profiles, Path(folder))
        return Path(folder)


class ProfileInterrupted(InterruptedWithResult):
    """Raised after Ctrl-C once a level has been profiled; ``result`` has the partial results."""

    result: ProfileResult


class ProfileDiff(NamedTuple):
    """Result of `ProfileResult.diff`: the record, and its table."""

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

    def __repr__(self) -> str:
        return line(self, count(len(self.difference.levels), "level"))

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.notebook import as_html
        from golow.report.profiling.difference import render_difference

        return as_html(lambda console: render_difference(self.difference, console=console))


def load_profile(place: str | Path) -> ProfileResult:
    """Load the profile from a folder that ``golow profile --save`` wrote, or from its
    ``profile.json``."""
    from golow.programs.profiling.store import load

    return ProfileResult(load(Path(place)))


@with_options(WorkloadOptions, Request)
def profile(
    model: str | nn.Module,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    levels: Sequence[str] | None = None,
    workers: Mapping[str, str | Sequence[str]] | None = None,
    threads: int | None = None,
    ranks: int = 1,
    precisions: Sequence[Precision] = ("default",),
    steps: int = 5,
    time_limit: float = 10.0,
    by_shape: bool = False,
    way_down: str | None = None,
    folder: str | Path | None = None,
    cache: Path | None = None,
    quiet: bool = False,
    observer: Observer | None = None,
    **workload: Unpack[WorkloadOptions],
) -> ProfileResult:
    """Show where a step's time and memory go, at every level. Workload and levels are as in
    `compare`. precisions: one profile per precision. steps: profiled steps of each level.
    time_limit: seconds of the race without a profiler. by_shape: separate operators by the shapes
    of their inputs. way_down: instead of a profile, count what is between the call of the layer
    with this path and the vendor's routine. folder: a new folder for the record, its tables as CSV
    and the traces; with several precisions, the traces of each have a separate folder in it.

    Raises `GolowError` for errors that the caller can fix, `ErrorWithResult` if the folder cannot
    be written at the end, and `ProfileInterrupted` with partial results on Ctrl-C. A failure of a
    level is recorded as its result.
    """
    from golow.programs.profiling import store as profile_store
    from golow.programs.profiling.profile import ProfileSettings
    from golow.programs.profiling.profile import profile as run
    from golow.programs.profiling.way_down.way_down import WaySettings
    from golow.programs.profiling.way_down.way_down import way_down as run_way_down
    from golow.report.profiling.export import write_tables

    if way_down is not None and ranks != 1:
        raise GolowError(
            "--way-down measures one process",
            "leave out --way-down, or leave out --ranks and --gpus.",
        )
    requests = [
        Request(
            model,
            example_inputs,
            threads=threads_of_rank(ranks) if threads is None else threads,
            ranks=ranks,
            precision=precision,
            **workload,
        )
        for precision in precisions
    ]
    _require_precisions(requests)

    def profiled(request: Request) -> Profile:
        traces = None
        if folder is not None:
            traces = Path(folder) / request.precision if len(requests) > 1 else Path(folder)
            profile_store.make_folder(traces)
        with shown_progress("comparison", observer, quiet) as display:
            if way_down is not None:
                way = WaySettings(
                    layer=way_down,
                    levels=levels,
                    workers=workers or {},
                    time_limit=time_limit,
                    cache=cache,
                )
                return run_way_down(request, way, display)
            settings = ProfileSettings(
                levels=levels,
                workers=workers or {},
                steps=steps,
                time_limit=time_limit,
                by_shape=by_shape,
                traces=traces,
                cache=cache,
            )
            return run(request, settings, display)

    found: list[Profile] = []
    try:
        for request in requests:
            found.append(profiled(request))
            if found[-1].interrupted:
                break
    except KeyboardInterrupt:
        if not found:
            raise
    except GolowError as error:
        if not found:
            raise
        raise ErrorWithResult(error, ProfileResult(tuple(found))) from error
    result = ProfileResult(tuple(found))
    if folder is not None:
        with keeping(result):
            result.save(folder)
            write_tables(found, Path(folder))
    if found[-1].interrupted or len(found) < len(requests):
        raise ProfileInterrupted(result)
    return result


def _require_precisions(requests: Sequence[Request]) -> None:
    """Raise `GolowError` if there is none, or for one of several that the device does not have: now
    rather than after the others have been profiled."""
    if not requests:
        raise GolowError("no precision is named", "leave out --precision, or name one.")
    for request in requests if len(requests) > 1 else ():
        require_precision(request.device, request.precision)
