"""A report of any records: what each kind shows, and which of its files go into the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golow.auditing import store as audit_store
from golow.comparison import store as comparison_store
from golow.files import read_text
from golow.life import store as life_store
from golow.profiling import store as profile_store
from golow.record import GolowError
from golow.report.comparison.table import workload_text
from golow.report.page import audit, comparison, life, profile, several, study, training
from golow.report.page.file import write_page
from golow.report.published import PublishedGrid, grid
from golow.report.records import is_study, kind_of
from golow.report.study.rows import read
from golow.report.training.table import heading
from golow.training import store as training_store


def write_report(records: Sequence[Path], file: Path, reference: str = "") -> Path:
    """Write one page with all these records, in their order; returns the file.

    records: folders that golow compare, audit, profile, train or study run wrote. reference: the
    name of published results, shown beside a study. Raises `GolowError` for a folder that is none,
    and if the page cannot be written.
    """
    paper = grid(reference) if reference else None
    titles, sections, packed = [], [], {}
    for number, folder in enumerate(records):
        title, found = _view(folder, f"r{number}", paper)
        for one in found if len(records) > 1 else ():
            one["of"] = title
        titles.append(title)
        sections += found
        packed[f"{number}-{folder.resolve().name}"] = _files(folder)
    compared = [comparison_store.load(f) for f in records if kind_of(f) == "comparison"]
    sections = several.sections(compared) + sections
    if not records:
        raise GolowError("there is nothing to report", "golow report runs/RECORD")
    return write_page("; ".join(dict.fromkeys(titles)), sections, packed, file)


def _view(folder: Path, name: str, paper: PublishedGrid | None) -> tuple[str, list[Any]]:
    """The record's title, and its sections."""
    kind = kind_of(folder)
    if kind == "comparison":
        compared = comparison_store.load(folder)
        found = comparison.sections(compared, name)
        if life_store.has_life(folder):
            found[2:2] = life.sections(life_store.load(folder), name)
        return workload_text(compared.workload), found
    if kind == "audit":
        audited = audit_store.load(folder)
        return f"Audit of {workload_text(audited.workload)}", audit.sections(audited, name)
    if kind == "training":
        trained = training_store.load(folder)
        return heading(trained), training.sections(trained, name)
    if kind == "profile":
        profiled = profile_store.load(folder)
        title = f"Profile of {workload_text(profiled[0].workload)}"
        return title, profile.sections(profiled, name)
    if is_study(folder):
        rows = read(folder)
        if not rows:
            raise GolowError(f"the study in {folder} has no cells yet", "golow study run NAME")
        return f"Study {rows[0].study}", study.sections(rows, name, paper)
    raise GolowError(
        f"{folder} is no record",
        "give a folder that golow compare, audit, profile, train or study run wrote.",
    )


def _files(folder: Path) -> dict[str, str]:
    """The record's own files; weights, figures and tables made of them stay outside, as do
    a profile's traces."""
    if kind_of(folder) == "profile":
        return {profile_store.FILE: read_text(folder / profile_store.FILE)}
    kinds = ("*.json", "study.toml") if is_study(folder) else ("*.json",)
    found = (path for kind in kinds for path in folder.rglob(kind) if "drafts" not in path.parts)
    names = sorted(path.relative_to(folder).as_posix() for path in found)
    return {name: read_text(folder / name) for name in names}
