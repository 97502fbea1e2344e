"""``golow study``: run, show, draw and export a grid of comparisons, load tests or texts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from golow.commands import completion
from golow.commands.options import (
    DeviceName,
    ReportFile,
    Trust,
    folder_named,
    folder_place,
    names,
    no_stream,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.splice import splice
from golow.commands.workload_flags import PublishedFlags
from golow.records.errors import GolowError
from golow.report.console import PlainConsole, plain, wide_console
from golow.storage.files import is_file, is_folder, require_place
from golow.storage.shell_words import shell_word

if TYPE_CHECKING:
    from golow.api import StudyResult
    from golow.programs.study.study_record import Study
    from golow.report.style import Format

study_app = typer.Typer(
    help="Run grids of comparisons over models, batch sizes, resolutions, precisions and thread "
    "counts.",
    no_args_is_help=True,
)

STUDIES = Path("runs/studies")


class ExportFormat(StrEnum):
    """The file format of an export."""

    csv = "csv"
    parquet = "parquet"
    json = "json"


Asked = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        help="A study from `golow study list`, or a TOML file.",
        show_default=False,
        autocompletion=completion.studies,
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        help="Name or folder of the study.",
        show_default=False,
        autocompletion=completion.studies,
    ),
]
Out = Annotated[Path, typer.Option(help="Folder that holds the studies.", callback=folder_named)]
EnvironmentName = Annotated[
    str | None,
    typer.Option(
        "--environment",
        help="Environment whose cells to show, if the study ran in several.  "
        "[default: the one with the most cells]",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class MeasuringFlags:
    """How the cells of a study are measured, and where results are written."""

    out: Out = STUDIES
    jobs: Annotated[
        int,
        typer.Option(help="Cells to measure at the same time, each on its own GPU or CPU cores."),
    ] = 1
    ray: Annotated[
        str | None,
        typer.Option(
            help="Measure on a Ray cluster: its address, or auto for the one on this machine.",
            show_default=False,
        ),
    ] = None
    no_skip: Annotated[
        bool,
        typer.Option("--no-skip", help="Also try cells predicted to exceed the memory limit."),
    ] = False
    refine: Annotated[
        bool,
        typer.Option(
            "--refine", help="Also measure cells with too few rounds again, with more time."
        ),
    ] = False
    budget: Annotated[
        float | None,
        typer.Option(help="Start no new cell after this many seconds.", show_default=False),
    ] = None
    report: ReportFile = None


@study_app.command("list")
def list_studies(out: Out = STUDIES) -> None:
    """List the built-in studies and those that you have started."""
    from golow.programs.study.file import built_in, read_study
    from golow.report.study.table import list_table

    found = {name: (read_study(file), "built in") for name, file in built_in().items()}
    found |= {name: (study, state) for name, study, state in _begun(out)}
    wide_console().print(list_table((name, *found[name]) for name in sorted(found)))


@study_app.command()
@splice
def run(
    study: Asked,
    device: Annotated[
        DeviceName | None,
        typer.Option(
            help="Run on this device instead of the one in the study.", show_default=False
        ),
    ] = None,
    *,
    published: PublishedFlags,
    measuring: MeasuringFlags,
) -> None:
    """Measure every cell of a study that has no record yet.

    A cell that fails or is skipped gets a record too. To continue after an interruption, run the
    command again. The exit status is 0 when every cell has a record, and 1 when some have none.
    """
    from golow.programs.study.published import with_published
    from golow.programs.study.run import find_study

    found = find_study(study, measuring.out, device.value if device else None)
    asked = with_published(
        found,
        pretrained=published.pretrained,
        download=published.download,
        phase=None if published.phase is None else published.phase.value,
    )
    _run(asked, measuring)


@study_app.command()
@splice
def resume(
    study: Name,
    trust: Trust = False,
    *,
    measuring: MeasuringFlags,
) -> None:
    """Continue a study with the settings of its last run."""
    from golow.programs.study.run import recorded_study

    folder = _folder(study, measuring.out)
    _run(recorded_study(folder, trust=trust), replace(measuring, out=folder.parent))


@study_app.command()
def status(study: Name, out: Out = STUDIES, environment: EnvironmentName = None) -> None:
    """Show how many cells are done, failed, skipped and waiting, and the time left."""
    from golow.api import load_study
    from golow.programs.study.forecast import outlook, so_far_at_a_time
    from golow.programs.study.memory import limit_bytes
    from golow.report.study.table import render_status

    result = load_study(_folder(study, out), environment)
    allowed = limit_bytes(result.study.limits.memory, None)
    records = result.records.values()
    left = result.waiting
    at_a_time = so_far_at_a_time(records)
    forecast = outlook(len(result.asked), left, records, result.study.limits, allowed, at_a_time)
    render_status(forecast, records, wide_console(), _where(result))


@study_app.command()
def show(
    study: Name,
    out: Out = STUDIES,
    environment: EnvironmentName = None,
    throughput: Annotated[
        bool,
        typer.Option("--throughput", help="Show images, tokens or samples per second instead."),
    ] = False,
) -> None:
    """Show each level's time relative to eager, its latencies under load, or its tokens per second,
    for every cell of the grid."""
    from golow.api import load_study
    from golow.report.study.rows import Measured, rows_of
    from golow.report.study.table import render as render_grid
    from golow.report.study.throughput import render_throughput

    result, console = load_study(_folder(study, out), environment), wide_console()
    if not result.study.is_compared:
        _show_others(result)
        return
    cells = [
        Measured(record, result.comparison(record) if record.is_measured else None)
        for record in result.records.values()
    ]
    print(plain(_where(result)))
    if result.records and throughput:
        render_throughput(result.study.name, cells, console)
    elif result.records:
        render_grid(rows_of(result.study.name, cells), console)
    _say_unclear(result)
    if result.waiting:
        print(f"{len(result.waiting)} of {len(result.asked)} cells have no record yet")


@study_app.command()
def export(
    study: Name,
    format: Annotated[ExportFormat, typer.Option(help="File format.")] = ExportFormat.csv,
    to: Annotated[
        Path | None,
        typer.Option(
            help="File to write.  [default: NAME.FORMAT]", show_default=False, callback=no_stream
        ),
    ] = None,
    out: Out = STUDIES,
) -> None:
    """Write a study as one table with a row per cell and level.

    docs/use/studies_export.md describes the columns.
    """
    from golow.api import load_study
    from golow.programs.study.state import stored_study
    from golow.report.study.export import export as write
    from golow.report.study_grids import export_grid, grid_of

    folder = _folder(study, out)
    file = to or Path(f"{folder.name}.{format.value}")
    require_place(file)
    study_asked = stored_study(folder)
    if not study_asked.is_compared:
        grid = grid_of(study_asked, load_study(folder).others())
        export_grid(grid, format.value, file)
    else:
        write(folder, format.value, file)
    print(file)


@study_app.command()
def figures(
    study: Name,
    out: Annotated[Path, typer.Option(help="Folder for the figures.", callback=folder_place)],
    reference: Annotated[
        str, typer.Option(help="Published results to draw underneath: levental2020.")
    ] = "",
    formats: Annotated[
        str, typer.Option(help="Comma-separated file formats: svg, png, pdf, html.")
    ] = "svg,png,html",
    studies: Out = STUDIES,
) -> None:
    """Draw time, memory and ratio over the grid of a study. Needs matplotlib."""
    from golow.report.html_report import write_report
    from golow.report.study.figures import write_study_figures
    from golow.report.study.rows import load

    folder, kinds = _folder(study, studies), names(formats) or []
    still = cast("list[Format]", [kind for kind in kinds if kind != "html"])
    files = write_study_figures(folder, out, still, reference)
    if "html" in kinds and load(folder):  # a study without cells has no page
        files.append(write_report([folder], out / "study.html", reference))
    for file in files:
        print(file)
    if not files:
        print(plain(f"nothing was drawn: {folder.name} has no measured cell"))


# ---------------------------------------------------------------- implementation


def _run(asked: Study, measuring: MeasuringFlags) -> None:
    from golow.api import run_study
    from golow.report.study.progress import StudyProgressDisplay

    with StudyProgressDisplay(PlainConsole(stderr=True)) as display:
        try:
            with prints_to_stderr():
                result = run_study(
                    asked,
                    out=measuring.out,
                    jobs=measuring.jobs,
                    ray=measuring.ray,
                    skip=not measuring.no_skip,
                    refine=measuring.refine,
                    budget=measuring.budget,
                    observer=display,
                )
        except KeyboardInterrupt:
            display.close()
            place = measuring.out / asked.name
            if is_file(place / "study.toml"):  # else it has not begun
                again = f"golow study resume {shell_word(place)}"
                print(f"to continue: {again}", file=sys.stderr)
            raise typer.Exit(130) from None
    _say_what_became(result)
    if measuring.report is not None and result.records:
        print(f"report: {result.report(measuring.report)}")
    raise typer.Exit(1 if result.waiting else 0)


def _show_others(result: StudyResult) -> None:
    """Show the load tests or generations of a study, and the cells that failed."""
    from golow.report.study.table import cell_text, reason_text
    from golow.report.study_grids import grid_of

    print(plain(_where(result)))
    if cells := result.others():
        wide_console().print(grid_of(result.study, cells).table)
    for record in result.records.values():
        if record.reason:
            print(plain(f"{cell_text(record.cell)}: {reason_text(record.reason)}"))
    if result.waiting:
        print(f"{len(result.waiting)} of {len(result.asked)} cells have no record yet")


def _say_what_became(result: StudyResult) -> None:
    from golow.report.study.table import counted_states

    print(f"{counted_states(result.records.values())}, {len(result.waiting)} waiting")
    _say_unclear(result)
    others = {name: n for name, n in result.environments.items() if name != result.environment}
    if others:
        kept = ", ".join(f"{count} in {name}" for name, count in others.items())
        print(plain(f"cells from other machines or versions are kept separately: {kept}"))
    print(f"to see the results: golow study show {shell_word(result.folder)}")


def _say_unclear(result: StudyResult) -> None:
    """Print the command that measures cells with too few rounds again, if there are any."""
    from golow.report.study.table import to_refine

    if result.unclear:
        again = f"golow study resume {shell_word(result.folder)} --refine"
        print(f"{to_refine(len(result.unclear))}: {again}")


def _where(result: StudyResult) -> str:
    """One line that names the study and the machine that measured its cells."""
    machine = result.machine
    hardware = (
        ", ".join(dict.fromkeys(machine.gpu)) if result.study.device == "cuda" else ""
    ) or machine.cpu_model
    others = len(result.environments) - 1
    apart = f"; other environments: {others}, see --environment" if others else ""
    return f"{result.study.name} on {hardware} ({result.environment}{apart})"


def _begun(out: Path) -> Iterator[tuple[str, Study, str]]:
    """The studies in the folder, each with its progress."""
    from golow.api import load_study

    for file in _studies(out):
        try:
            result = load_study(file.parent)
        except GolowError as error:
            print(f"golow: {plain(error.message)}", file=sys.stderr)
            continue
        yield (
            file.parent.name,
            result.study,
            f"{len(result.records)} of {len(result.asked)} cells"
            + (f", {len(result.unclear)} unclear" if result.unclear else ""),
        )


def _studies(out: Path) -> list[Path]:
    """The files of the studies in the folder."""
    return sorted(out.glob("*/study.toml")) if is_folder(out) else []


def _folder(study: str, out: Path) -> Path:
    """The folder of a started study, given as a folder or as a name under --out."""
    for folder in (Path(study), out / study):
        if is_file(folder / "study.toml"):
            return folder
    known = [file.parent.name for file in _studies(out)]
    raise GolowError(
        f"there is no study {study!r} in {out}",
        f"studies there: {', '.join(known) or 'none'}; to start one: golow study run NAME",
    )
