"""``golow show``: show recorded comparisons, audits, trainings and profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
from golow.storage.files import require_there


def show(
    records: Annotated[
        list[Path],
        typer.Argument(
            help="Folders that golow compare, audit, train, profile or study run wrote, CSV files "
            "of golow study export, or pages of golow report."
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
    """Show recorded comparisons, audits, trainings and profiles; --by, --sort, --top are for
    profiles, --columns and --format for comparisons.

    Two comparisons are shown as one table of what changed from the first to the second. Several can
    be shown together only if machine, versions and workload are the same. A folder of records, such
    as runs, is listed.
    """
    from golow.programs.auditing import store as audit_store
    from golow.programs.comparison import store
    from golow.programs.life import store as life_store
    from golow.programs.profiling import store as profile_store
    from golow.programs.training import store as training_store
    from golow.report.audit import table as auditing
    from golow.report.comparison.changes import render_changes
    from golow.report.console import wide_console
    from golow.report.life import table as life
    from golow.report.page.file import is_page, unpacked
    from golow.report.profiling import table as profiling
    from golow.report.records import (
        exported_study,
        is_folder_of_records,
        is_study,
        records_in,
        render_records,
    )
    from golow.report.study.export import read_csv
    from golow.report.study.rows import read
    from golow.report.study.table import render_grid
    from golow.report.training import table as training

    profiling.require_view(by, sort)
    look = Look(names(columns) or [], format.value)
    look.require()
    for path in records:
        require_there(path, "golow show runs lists the records in the folder runs.")
    pages = [path for path in records if is_page(path)]
    for page in pages:
        with unpacked(page) as inside:
            show(inside, anyway, by_layer, by, sort, top, columns, format)
    records = [path for path in records if path not in pages]
    listed = [path for path in records if is_folder_of_records(path)]
    for path in listed:
        render_records(path, records_in(path))
    records = [path for path in records if path not in listed]
    studies = [path for path in records if is_study(path)]
    for path in studies:
        render_grid(read(path), wide_console())
    records = [path for path in records if path not in studies]
    exported = {path: file for path in records if (file := exported_study(path))}
    for file in exported.values():
        render_grid(read_csv(file), wide_console())
    records = [path for path in records if path not in exported]
    profiles = [path for path in records if profile_store.is_profile(path)]
    for path in profiles:
        profiling.render(profile_store.load(path), by=by, sort=sort, top=top)
    records = [path for path in records if path not in profiles]
    audits = [path for path in records if audit_store.is_audit(path)]
    for path in audits:
        auditing.render(audit_store.load(path))
    records = [path for path in records if path not in audits]
    trainings = [path for path in records if training_store.is_training(path)]
    for path in trainings:
        training.render(training_store.load(path))
    comparisons = [store.load(path) for path in records if path not in trainings]
    if comparisons and not anyway:
        store.require_alike(comparisons)
    if len(comparisons) == 2 and not (look.is_document or by_layer or look.columns):
        render_changes(comparisons[0], comparisons[1])
        return
    for comparison in comparisons:
        look.show(comparison, by_layer=by_layer)
    if look.is_document:
        return
    for path in records:
        if life_store.has_life(path):
            life.render(life_store.load(path))
