"""``golow report``: records as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from golow.commands.options import page_place
from golow.records.errors import GolowError
from golow.storage.shell_words import shell_word


def report(
    records: Annotated[
        list[Path],
        typer.Argument(
            help="Folders that golow compare, audit, generate, load, profile, quantize, train or "
            "study run wrote, CSV files of golow study export, or pages of golow report."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.", callback=page_place)] = Path(
        "report.html"
    ),
    reference: Annotated[
        str, typer.Option(help="Published results to show beside a study: levental2020.")
    ] = "",
    open: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write one HTML page from records: comparisons, audits, profiles, training runs and others.

    The page needs no network. The records are inside: golow show report.html reads them back.
    """
    from golow.report.html_report import write_report
    from golow.report.records import is_folder_of_records

    for place in filter(is_folder_of_records, records):
        raise GolowError(
            f"{place} is a folder of records, not a record",
            f"golow show {shell_word(place)} lists them; to report one: "
            f"golow report {shell_word(place / 'RECORD')}",
        )
    page = write_report(records, out, reference)
    print(f"report: {page}")
    if open:
        webbrowser.open(page.resolve().as_uri())
