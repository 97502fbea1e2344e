"""A report of any records: what each kind shows, and which of its files go into the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from golow.records.comparison import Comparison
from golow.records.errors import GolowError
from golow.report.page import several
from golow.report.page.file import is_page, unpacked, write_page
from golow.report.published import PublishedGrid, grid
from golow.report.record_kinds import RecordKind, kind_of, no_record
from golow.storage.files import is_folder, read_text

MOST_NAMES = 3  # in a title


class Shown(NamedTuple):
    """A record in the page: its kind, title and sections, and itself if it is a comparison."""

    kind: RecordKind
    title: str
    sections: list[Any]
    compared: Comparison | None = None


def write_report(records: Sequence[Path], file: Path, reference: str = "") -> Path:
    """Write one page with all these records, in their order; returns the file.

    records: folders that golow compare, audit, generate, profile, train or study run wrote,
    CSV files of golow study export, or pages, whose records are taken. reference: the name of
    published results, shown beside a study. Raises `GolowError` for a place that is none, and if
    the page cannot be written.
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
    subjects = _subjects(shown, records)
    _name_changes(shown, subjects)
    compared = [one.compared for one in shown if one.compared is not None]
    sections = several.sections(compared)
    sections += [section for one in shown for section in one.sections]
    packed = {
        f"{number}-{place.resolve().name}": _files(place, one.kind)
        for number, (place, one) in enumerate(zip(records, shown, strict=True))
    }
    kinds = ", ".join(dict.fromkeys(one.kind.name for one in shown))
    return write_page(_title(subjects), sections, packed, file, kinds=kinds)


def _subjects(shown: Sequence[Shown], records: Sequence[Path]) -> list[str]:
    """Subject of each record; with its name if another record of its kind has the same subject."""
    counts = Counter((one.kind.name, one.title) for one in shown)
    return [
        one.title
        if counts[one.kind.name, one.title] == 1
        else f"{one.title}, {place.resolve().name}"
        for one, place in zip(shown, records, strict=True)
    ]


def _name_changes(shown: Sequence[Shown], subjects: Sequence[str]) -> None:
    """Say in the first section of a record what it is of, where that is not what the one before it
    was of."""
    last = subjects[0] if len(set(subjects)) == 1 else ""
    for one, subject in zip(shown, subjects, strict=True):
        if subject != last:
            one.sections[0]["of"] = subject
        last = subject


def _title(subjects: Sequence[str]) -> str:
    """The subject; of several the names that they begin with."""
    if len(set(subjects)) == 1:
        return subjects[0]
    names = list(dict.fromkeys(subject.partition(", ")[0] for subject in subjects))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{'; '.join(names[:MOST_NAMES])}{more}, {len(subjects)} records"


def _shown(place: Path, name: str, paper: PublishedGrid | None) -> Shown:
    """name: prefix of the sections' anchors."""
    kind = kind_of(place)
    if kind is None:
        raise no_record(place)
    record = kind.load(place)
    if not record:  # the rows of a study; no other record is empty
        raise GolowError(f"the study in {place} has no cells yet", "golow study run NAME")
    sections = kind.sections(record, name, paper=paper)
    for other in kind.kinds_beside(place):
        sections[-1:-1] = other.sections(other.load(place), name)
    compared = record if isinstance(record, Comparison) else None
    return Shown(kind, kind.title(record), sections, compared)


def _files(place: Path, kind: RecordKind) -> dict[str, str]:
    """The record's own files; weights, figures and tables made of them stay outside, and the cell
    that a study is about to measure."""
    if not is_folder(place):
        return {place.name: read_text(place)}
    found = (file.relative_to(place) for pattern in kind.packed for file in place.glob(pattern))
    names = sorted(file.as_posix() for file in found if "drafts" not in file.parts)
    return {name: read_text(place / name) for name in names}
