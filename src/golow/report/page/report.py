"""A report of any records: what each kind shows, and which of its files go into the page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from golow.programs.auditing import store as audit_store
from golow.programs.comparison import store as comparison_store
from golow.programs.life import store as life_store
from golow.programs.profiling import store as profile_store
from golow.programs.training import store as training_store
from golow.records.comparison import Comparison
from golow.records.errors import GolowError
from golow.report.comparison.table import workload_text
from golow.report.page import audit, comparison, life, profile, several, study, training
from golow.report.page.file import is_page, unpacked, write_page
from golow.report.published import PublishedGrid, grid
from golow.report.records import exported_study, is_study, kind_of
from golow.report.study.export import read_csv
from golow.report.study.rows import read
from golow.report.training.table import heading
from golow.storage.files import read_text, require_there


class Shown(NamedTuple):
    """A record in the page: its title and sections, and itself if it is a comparison."""

    title: str
    sections: list[Any]
    compared: Comparison | None = None


def write_report(records: Sequence[Path], file: Path, reference: str = "") -> Path:
    """Write one page with all these records, in their order; returns the file.

    records: folders that golow compare, audit, profile, train or study run wrote, CSV files of
    golow study export, or pages, whose records are taken. reference: the name of published results,
    shown beside a study. Raises `GolowError` for a place that is none, and if the page cannot be
    written.
    """
    if not records:
        raise GolowError("there is nothing to report", "golow report runs/RECORD")
    with ExitStack() as open_pages:
        places = [
            place
            for given in records
            for place in (open_pages.enter_context(unpacked(given)) if is_page(given) else [given])
        ]
        return _write(places, file, grid(reference) if reference else None)


def _write(records: Sequence[Path], file: Path, paper: PublishedGrid | None) -> Path:
    shown = [_shown(place, f"r{number}", paper) for number, place in enumerate(records)]
    for one in shown if len(shown) > 1 else ():
        for section in one.sections:
            section["of"] = one.title
    compared = [one.compared for one in shown if one.compared is not None]
    sections = several.sections(compared)
    sections += [section for one in shown for section in one.sections]
    packed = {
        f"{number}-{place.resolve().name}": _files(place) for number, place in enumerate(records)
    }
    title = "; ".join(dict.fromkeys(one.title for one in shown))
    return write_page(title, sections, packed, file)


def _shown(place: Path, name: str, paper: PublishedGrid | None) -> Shown:
    """name: prefix of the sections' anchors."""
    kind, exported = kind_of(place), exported_study(place)
    if kind == "comparison":
        compared = comparison_store.load(place)
        found = comparison.sections(compared, name)
        if life_store.has_life(place):
            found[2:2] = life.sections(life_store.load(place), name)
        return Shown(workload_text(compared.workload), found, compared)
    if kind == "audit":
        audited = audit_store.load(place)
        title = f"Audit of {workload_text(audited.workload)}"
        return Shown(title, audit.sections(audited, name))
    if kind == "training":
        trained = training_store.load(place)
        return Shown(heading(trained), training.sections(trained, name))
    if kind == "profile":
        profiled = profile_store.load(place)
        title = f"Profile of {workload_text(profiled[0].workload)}"
        return Shown(title, profile.sections(profiled, name))
    if is_study(place) or exported:
        rows = read_csv(exported) if exported else read(place)
        if not rows:
            raise GolowError(f"the study in {place} has no cells yet", "golow study run NAME")
        return Shown(f"Study {rows[0].study}", study.sections(rows, name, paper))
    require_there(place, "golow show runs lists the records in the folder runs.")
    raise GolowError(
        f"{place} is no record",
        "give a folder that golow compare, audit, profile, train or study run wrote, a CSV file of "
        "golow study export, or a page of golow report.",
    )


def _files(folder: Path) -> dict[str, str]:
    """The record's own files; weights, figures and tables made of them stay outside, as do
    a profile's traces."""
    if exported := exported_study(folder):
        return {exported.name: read_text(exported)}
    if kind_of(folder) == "profile":
        return {profile_store.FILE: read_text(folder / profile_store.FILE)}
    kinds = ("*.json", "study.toml") if is_study(folder) else ("*.json",)
    found = (path for kind in kinds for path in folder.rglob(kind) if "drafts" not in path.parts)
    names = sorted(path.relative_to(folder).as_posix() for path in found)
    return {name: read_text(folder / name) for name in names}
