"""``golow report``: records as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def report(
    records: Annotated[
        list[Path],
        typer.Argument(help="Folders that golow compare, audit, profile or train wrote."),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    open: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write one HTML page that shows recorded comparisons, audits, profiles and trainings.

    The page needs no network. The records are inside: golow show report.html reads them back.
    """
    from golow.report.page.report import write_report

    page = write_report(records, out)
    print(f"report: {page}")
    if open:
        webbrowser.open(page.resolve().as_uri())
