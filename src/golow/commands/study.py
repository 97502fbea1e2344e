"""``golow study``: run a grid of comparisons, look at it, draw it, export it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from golow.commands.options import DeviceName, names
from golow.record import GolowError
from golow.report.console import wide_console

if TYPE_CHECKING:
    from golow.api import StudyResult
    from golow.study.record import Study

study_app = typer.Typer(
    help="Grids over models, batch sizes, resolutions, precisions and thread counts.",
    no_args_is_help=True,
)

STUDIES = Path("runs/studies")


class ExportFormat(StrEnum):
    """What a study is exported to."""

    csv = "csv"
    parquet = "parquet"
    json = "json"


Asked = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        help="A name that `golow study list` lists, or a TOML file.",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(help="A study's name, or its folder.", show_default=False)]
Out = Annotated[Path, typer.Option(help="Folder of the studies.")]
Jobs = Annotated[
    int, typer.Option(help="Cells at a time, each on a GPU of its own or on cores of its own.")
]
Ray = Annotated[
    str | None,
    typer.Option(
        help="Measure on a Ray cluster: auto for the one of this machine, or its address.",
        show_default=False,
    ),
]
NoSkip = Annotated[
    bool,
    typer.Option("--no-skip", help="Try cells too that are certain to need too much memory."),
]
Budget = Annotated[
    float | None,
    typer.Option(help="Seconds after which no further cell is begun.", show_default=False),
]
EnvironmentName = Annotated[
    str | None,
    typer.Option(
        "--environment",
        help="Cells measured there, where there are several.  [default: the one with most cells]",
        show_default=False,
    ),
]


@study_app.command("list")
def list_studies(out: Out = STUDIES) -> None:
    """List the studies that golow brings along, and those that were begun."""
    from golow.report.study.table import list_table
    from golow.study.file import built_in, read_study

    found = {name: (read_study(file), "built in") for name, file in built_in().items()}
    found |= {name: (study, state) for name, study, state in _begun(out)}
    wide_console().print(list_table((name, *found[name]) for name in sorted(found)))


@study_app.command()
def run(
    study: Asked,
    device: Annotated[
        DeviceName | None,
        typer.Option(help="Instead of the study's own.", show_default=False),
    ] = None,
    out: Out = STUDIES,
    jobs: Jobs = 1,
    ray: Ray = None,
    no_skip: NoSkip = False,
    budget: Budget = None,
) -> None:
    """Measure every cell of a study that has no record yet.

    Whatever happens to a cell is its record; run it again to go on after an interruption. Ends
    with status 0 when every cell has its record, 1 when some are left.
    """
    _run(study, device, out, jobs, ray, no_skip, budget)


@study_app.command()
def resume(
    study: Name,
    out: Out = STUDIES,
    jobs: Jobs = 1,
    ray: Ray = None,
    no_skip: NoSkip = False,
    budget: Budget = None,
) -> None:
    """Go on with a study as it was asked for when it was last run."""
    folder = _folder(study, out)
    _run(str(folder / "study.toml"), None, folder.parent, jobs, ray, no_skip, budget)


@study_app.command()
def status(study: Name, out: Out = STUDIES, environment: EnvironmentName = None) -> None:
    """Say how many cells are done, failed, skipped and waiting, and how long is left."""
    from golow.api import load_study
    from golow.report.study.table import render_status
    from golow.study.forecast import outlook, so_far_at_a_time
    from golow.study.memory import limit_bytes

    result = load_study(_folder(study, out), environment)
    allowed = limit_bytes(result.study.limits.memory, None)
    records = result.records.values()
    left = result.waiting
    at_a_time = so_far_at_a_time(records)
    forecast = outlook(len(result.asked), left, records, result.study.limits, allowed, at_a_time)
    render_status(forecast, records, wide_console(), _where(result))


@study_app.command()
def show(study: Name, out: Out = STUDIES, environment: EnvironmentName = None) -> None:
    """Show the time of every level over eager's, over the grid."""
    from golow.api import load_study
    from golow.report.study.rows import Measured, rows_of
    from golow.report.study.table import render_grid

    result, console = load_study(_folder(study, out), environment), wide_console()
    cells = (
        Measured(record, result.comparison(record) if record.state == "done" else None)
        for record in result.records.values()
    )
    print(_where(result))
    if result.records:
        render_grid(rows_of(result.study.name, cells), console)
    if result.waiting:
        print(f"{len(result.waiting)} of {len(result.asked)} cells have no record yet")


@study_app.command()
def export(
    study: Name,
    format: Annotated[ExportFormat, typer.Option(help="Of the file.")] = ExportFormat.csv,
    to: Annotated[
        Path | None,
        typer.Option(help="The file.  [default: NAME.FORMAT]", show_default=False),
    ] = None,
    out: Out = STUDIES,
) -> None:
    """Write a study as one table: a row a cell and level; docs/studies_export.md has the schema."""
    from golow.report.study.export import export as write

    folder = _folder(study, out)
    file = to or Path(f"{folder.name}.{format.value}")
    write(folder, format.value, file)
    print(file)


@study_app.command()
def figures(
    study: Name,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    reference: Annotated[
        str, typer.Option(help="Published figures to lay under them: levental2020.")
    ] = "",
    formats: Annotated[
        str, typer.Option(help="svg, png, pdf, html, with commas between.")
    ] = "svg,png,html",
    studies: Annotated[Path, typer.Option(help="Folder of the studies.")] = STUDIES,
) -> None:
    """Draw a study: time, memory and ratio over the grid; needs matplotlib."""
    from golow.report.study.figures import write_study_figures

    for file in write_study_figures(
        _folder(study, studies), out, tuple(names(formats) or ()), reference
    ):
        print(file)


# ---------------------------------------------------------------- how it is done


def _run(
    study: str,
    device: DeviceName | None,
    out: Path,
    jobs: int,
    ray: str | None,
    no_skip: bool,
    budget: float | None,
) -> None:
    from golow.api import run_study
    from golow.report.study.progress import StudyProgressDisplay
    from golow.study.run import find_study

    asked = find_study(study, out, device.value if device is not None else None)
    with StudyProgressDisplay(Console(stderr=True)) as display:
        try:
            result = run_study(
                asked,
                out=out,
                jobs=jobs,
                ray=ray,
                skip=not no_skip,
                budget=budget,
                observer=display,
            )
        except KeyboardInterrupt:
            display.close()
            print(f"golow study resume {out / asked.name} goes on", file=sys.stderr)
            raise typer.Exit(130) from None
    _say_what_became(result)
    raise typer.Exit(1 if result.waiting else 0)


def _say_what_became(result: StudyResult) -> None:
    states = [record.state for record in result.records.values()]
    counted = [f"{states.count(state)} {state}" for state in ("done", "failed", "skipped")]
    print(f"{', '.join(counted)}, {len(result.waiting)} waiting")
    others = {name: n for name, n in result.environments.items() if name != result.environment}
    if others:
        kept = ", ".join(f"{count} in {name}" for name, count in others.items())
        print(f"cells of unlike machines or versions are kept apart: {kept}")
    print(f"golow study show {result.folder}")


def _where(result: StudyResult) -> str:
    """The study and the machine of its cells, in one line."""
    machine = result.machine
    hardware = (
        ", ".join(dict.fromkeys(machine.gpu)) if result.study.device == "cuda" else ""
    ) or machine.cpu_model
    others = len(result.environments) - 1
    apart = f"; {others} more environments, see --environment" if others else ""
    return f"{result.study.name} on {hardware} ({result.environment}{apart})"


def _begun(out: Path) -> Iterator[tuple[str, Study, str]]:
    """The studies of the folder, and how far each is."""
    from golow.api import load_study

    for file in sorted(out.glob("*/study.toml")):
        try:
            result = load_study(file.parent)
        except GolowError as error:
            print(f"golow: {error.message}", file=sys.stderr)
            continue
        yield (
            file.parent.name,
            result.study,
            f"{len(result.records)} of {len(result.asked)} cells",
        )


def _folder(study: str, out: Path) -> Path:
    """Where a study lies that has been begun: named by its folder, or by its name under --out."""
    for folder in (Path(study), out / study):
        if (folder / "study.toml").is_file():
            return folder
    known = sorted(file.parent.name for file in out.glob("*/study.toml"))
    raise GolowError(
        f"there is no study {study!r} in {out}",
        f"begun there: {', '.join(known) or 'none'}; golow study run {study} begins it.",
    )
