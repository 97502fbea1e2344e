"""``golow show``: show recorded comparisons, audits, trainings and profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from golow.commands.options import ProfileBy, ProfileSort, ProfileTop


def show(
    records: Annotated[
        list[Path],
        typer.Argument(help="Folders that golow compare, audit, train or profile wrote."),
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
) -> None:
    """Show recorded comparisons, audits, trainings and profiles; --by, --sort, --top are for
    profiles.

    Several comparisons can be shown together only if machine, versions and workload are the same.
    """
    from golow.auditing import store as audit_store
    from golow.comparison import store
    from golow.life import store as life_store
    from golow.profiling import store as profile_store
    from golow.report.audit import table as auditing
    from golow.report.comparison.table import render
    from golow.report.life import table as life
    from golow.report.profiling import table as profiling
    from golow.report.training import table as training
    from golow.training import store as training_store

    profiling.require_view(by, sort)
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
    for comparison in comparisons:
        render(comparison, by_layer=by_layer)
    for path in records:
        if life_store.has_life(path):
            life.render(life_store.load(path))
