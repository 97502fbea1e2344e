"""``golow show``: show recorded comparisons, audits, training runs and profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands.look import Look
from golow.commands.options import (
    Columns,
    FormatName,
    FormatOption,
    ProfileBy,
    ProfileSort,
    ProfileTop,
    names,
)
from golow.commands.typed_options import typed_options
from golow.records.errors import GolowError
from golow.storage.files import require_there

if TYPE_CHECKING:
    from golow.report.record_kinds import RecordKind

OF_PROFILES = ("by", "sort", "top")


def show(
    context: typer.Context,
    records: Annotated[
        list[Path],
        typer.Argument(
            help="Folders that golow compare, audit, generate, load, profile, quantize, train or "
            "study run wrote, CSV files of golow study export, or pages of golow report."
        ),
    ],
    anyway: Annotated[
        bool, typer.Option(help="Show comparisons together even if they are not comparable.")
    ] = False,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Also show each level's time by layer.")
    ] = False,
    by: ProfileBy = "operator",
    sort: ProfileSort = "time",
    top: ProfileTop = 10,
    columns: Columns = None,
    format: FormatOption = FormatName.table,
) -> None:
    """Show records: comparisons, audits, training runs, profiles and others.

    Two comparisons are shown as one table of what changed from the first to the second. Several can
    be shown together only if machine, versions and workload are the same. For a folder of records,
    such as runs, its records are listed. --by, --sort and --top are for profiles; --by-layer,
    --columns and --format are for comparisons.
    """
    from golow.report.page.file import is_page, unpacked
    from golow.report.profiling.table import require_view
    from golow.report.record_kinds import COMPARISON, KINDS, NOTHING_THERE, PROFILE
    from golow.report.records import is_folder_of_records, records_in, render_records

    require_view(by, sort)
    look = Look(names(columns) or [], format.value)
    look.require()
    for path in records:
        require_there(path, NOTHING_THERE)
    pages = [path for path in records if is_page(path)]
    for page in pages:
        with unpacked(page) as inside:
            show(context, inside, anyway, by_layer, by, sort, top, columns, format)
    records = [path for path in records if path not in pages]
    listed = [path for path in records if is_folder_of_records(path)]
    for path in listed:
        render_records(path, records_in(path))
    records = [path for path in records if path not in listed]
    if by_layer or look.is_document or look.columns:
        options = "--by-layer, --columns and --format are"
        _require_one(records, COMPARISON, options, "leave them out.")
    for name, option in typed_options(context):
        if name in OF_PROFILES:
            hint = "leave it out; --by-layer shows the layers of a comparison."
            _require_one(records, PROFILE, f"{option} is", hint)
    for kind in KINDS:
        if kind is not COMPARISON:
            found = [path for path in records if kind.is_named(path)]
            for path in found:
                kind.render(kind.load(path), by=by, sort=sort, top=top)
            records = [path for path in records if path not in found]
    _show_comparisons(records, look, anyway, by_layer)


def _require_one(places: list[Path], kind: RecordKind, options: str, hint: str) -> None:
    """Raise `GolowError` if no place holds the kind of record that these options are for."""
    from golow.report.record_kinds import kind_of

    if not places or any(kind.is_named(place) for place in places):
        return
    other = kind_of(places[0])
    if other is not None:
        raise GolowError(
            f"{options} for {kind.name}s, but {places[0]} is a different kind of record: "
            f"{other.name}",
            hint,
        )


def _show_comparisons(places: list[Path], look: Look, anyway: bool, by_layer: bool) -> None:
    """Show comparisons as one table of changes, or each with the records beside it. Places without
    a known record are passed too, and are an error."""
    from golow.programs.comparison.store import require_alike
    from golow.report.comparison.changes import render_changes
    from golow.report.record_kinds import COMPARISON, no_record

    for place in places:
        if not COMPARISON.is_named(place):
            raise no_record(place)
    comparisons = [COMPARISON.load(path) for path in places]
    if comparisons and not anyway:
        require_alike(comparisons)
    if len(comparisons) == 2 and not (look.is_document or by_layer or look.columns):
        render_changes(comparisons[0], comparisons[1])
        return
    for comparison in comparisons:
        COMPARISON.render(comparison, by_layer=by_layer, columns=look.columns, form=look.form)
    if look.is_document:
        return
    for path in places:
        for kind in COMPARISON.kinds_beside(path):
            kind.render(kind.load(path))
