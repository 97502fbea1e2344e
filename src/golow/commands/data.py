"""``golow data``: list, download and verify data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.commands import completion
from golow.records.errors import GolowError
from golow.report.console import PlainConsole, plain, wide_console
from golow.report.units import bytes_text

if TYPE_CHECKING:
    from golow.data.catalog import Dataset
    from golow.data.prepare import Progress
    from golow.data.verify import Finding

data_app = typer.Typer(help="List, download and verify data sets.", no_args_is_help=True)

DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root",
        help="Folder that holds the data sets.  [default: $GOLOW_DATA, or golow's cache]",
        show_default=False,
    ),
]
Name = Annotated[
    str,
    typer.Argument(help="A data set from `golow data list`.", autocompletion=completion.datasets),
]
OptionalName = Annotated[
    str | None,
    typer.Argument(help="A data set from `golow data list`.  [default: all]", show_default=False),
]


@data_app.command("list")
def list_datasets() -> None:
    """List the data sets that golow can read."""
    from golow.data.catalog import CATALOG

    table = _table("data set", "description", "classes", "training", "test", "sample")
    for dataset in CATALOG.values():
        size = "x".join(map(str, dataset.size)) if dataset.size else "any size"
        table.add_row(
            dataset.name,
            dataset.summary,
            str(len(dataset.classes)),
            f"{dataset.samples['train']:,}",
            f"{dataset.samples['test']:,}",
            f"sequence {dataset.sequence}" if dataset.sequence else f"{dataset.channels}x{size}",
        )
    table.add_row("folder:PATH", "your own images: PATH/CLASS/*", "", "", "", "3xany size")
    wide_console().print(table)


@data_app.command()
def status(data_root: DataRoot = None) -> None:
    """Show which data sets are on this machine, where, and the files golow prepared from them."""
    from golow.data import catalog, places
    from golow.storage.cache import default_cache

    cache = default_cache()
    root, console = places.data_root(data_root, cache), wide_console()
    table = _table("data set", "here", "where, or how to get it")
    for dataset in catalog.CATALOG.values():
        here, where = _place(dataset, root)
        style = "green" if here == "yes" else "yellow"
        table.add_row(dataset.name, Text(here, style=style), Text(where, overflow="fold"))
    _print_line(console, f"data root: {root}")
    console.print(table)
    console.print()
    _print_prepared(console, cache)


@data_app.command()
def fetch(name: Name, data_root: DataRoot = None) -> None:
    """Download a data set from its publisher and check its sizes and MD5 sums.

    An interrupted download continues where it stopped. Complete files are not downloaded again.
    """
    from golow.data import catalog, places
    from golow.data.fetch import fetch as run
    from golow.storage.cache import open_cache

    root = places.data_root(data_root, open_cache())
    with data_progress(PlainConsole(stderr=True), sizes=True) as progress:
        folder = run(catalog.find(name), root, progress)
    print(f"{name}: {folder}")


@data_app.command()
def verify(name: OptionalName = None, data_root: DataRoot = None) -> None:
    """Check downloaded files against the publishers' MD5 sums, and prepared files against golow's.

    The exit status is 1 when a file does not match.
    """
    from golow.data import catalog, places
    from golow.data.prepare import title
    from golow.data.verify import verify_prepared, verify_published
    from golow.storage.cache import default_cache

    cache = default_cache()
    root = places.data_root(data_root, cache)
    findings = []
    for dataset in [catalog.find(name)] if name else list(catalog.CATALOG.values()):
        try:
            findings += _told(verify_published(dataset, catalog.located(dataset, root)))
        except GolowError as error:
            if name:
                raise
            print(plain(error.message))
    findings += _told(verify_prepared(cache, f"{title(name)}-" if name else ""))
    raise typer.Exit(1 if any(finding.wrong for finding in findings) else 0)


@contextmanager
def data_progress(console: Console, sizes: bool = False) -> Iterator[Progress]:
    """A progress bar for each task, counting samples, or bytes when ``sizes`` is set."""
    from rich import progress as parts

    counted = (
        (parts.DownloadColumn(), parts.TransferSpeedColumn())
        if sizes
        else (parts.MofNCompleteColumn(),)
    )
    words, left = parts.TextColumn("{task.description}"), parts.TimeRemainingColumn()
    columns = (words, parts.BarColumn(), *counted, left)
    bar = parts.Progress(*columns, console=console)
    tasks: dict[str, parts.TaskID] = {}

    def progress(what: str, done: int, total: int) -> None:
        bar.start()
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done)

    try:
        yield progress
    finally:
        if tasks:
            bar.stop()


def _place(dataset: Dataset, root: Path) -> tuple[str, str]:
    """True if the data set is on this machine, with its folder; else the command that gets it."""
    from golow.data.catalog import located
    from golow.data.fetch import complete

    if not dataset.downloads:
        return "yes", "embedded"
    try:
        folder = located(dataset, root)
    except GolowError:
        return "no", f"golow data fetch {dataset.name}"
    return ("yes" if complete(dataset, root) else "partly"), str(folder)


def _print_prepared(console: Console, cache: Path) -> None:
    """Print one row per prepared file, then their total size."""
    from golow.data.places import prepared_files, prepared_folder
    from golow.data.token_file import open_prepared

    files = prepared_files(cache)
    table = _table("prepared", "samples", "sample", "size")
    for file in files:
        size = bytes_text(file.stat().st_size)
        try:
            _, samples, facts = open_prepared(file)
        except GolowError:
            table.add_row(Text(file.name, overflow="fold"), "", "damaged", size)
            continue
        what = Text(f"{facts.dataset} {facts.part}", overflow="fold")
        table.add_row(what, f"{len(samples):,}", "x".join(map(str, samples.shape[1:])), size)
    if files:
        console.print(table)
    total = bytes_text(sum(file.stat().st_size for file in files))
    _print_line(console, f"{total} of prepared files in {prepared_folder(cache)}, safe to delete")


def _told(findings: Iterable[Finding]) -> list[Finding]:
    """Print each finding as it arrives, and return them all."""
    told = []
    for finding in findings:
        print(plain(f"{finding.file}: {finding.wrong or 'ok'}"))
        told.append(finding)
    return told


def _print_line(console: Console, text: str) -> None:
    console.print(Text(text, overflow="fold"))


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title)
    return table
