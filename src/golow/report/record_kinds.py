"""The kinds of record, one row each: the file that one is known by, and the modules that load it,
print it and make its sections of a page.

A new kind is a row here, its modules, and a function in ``findings.py`` if the list of a folder
names it. They are imported when a record of their kind is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from golow.records.errors import GolowError
from golow.report.study.export import exported_study
from golow.storage.files import is_file, is_folder, require_there

WRITERS = "golow compare, audit, generate, load, profile, quantize, train or study run"
"""The commands that write records."""
NOTHING_THERE = (
    "golow compare MODEL writes a record into the folder runs; golow show runs lists those in it."
)


class RecordKind(NamedTuple):
    """A kind of record.

    name: in lists. file: makes a folder a record of this kind. store: the module with
    ``load(place)``. table: the module with ``render(record)``, which prints it. page: the module
    with ``title(record)`` and ``sections(record, name)``, name being the prefix of their anchors.
    options: of `golow show` and `golow report`, that ``render`` or ``sections`` takes as well.
    packed: patterns of the files that go into a page. beside: records that may be in the same
    folder, and are shown with it. by_file: whether `golow show` takes the file without its folder.
    listed: whether the list of a folder names it.
    """

    name: str
    file: str
    store: str
    table: str
    page: str
    options: tuple[str, ...] = ()
    packed: tuple[str, ...] = ("**/*.json",)
    beside: tuple[RecordKind, ...] = ()
    by_file: bool = False
    listed: bool = True

    def is_at(self, place: Path) -> bool:
        """True if this folder is such a record; raises `GolowError` where its file is a folder."""
        return is_file(place / self.file)

    def is_named(self, place: Path) -> bool:
        """True if a user who gives this place to `golow show` means such a record."""
        named = self.by_file and place.name == self.file
        return self.is_at(place) or (named and not is_folder(place))

    def kinds_beside(self, place: Path) -> list[RecordKind]:
        """The kinds of further records in the folder of this one."""
        return [kind for kind in self.beside if (place / kind.file).is_file()]

    def load(self, place: Path) -> Any:
        """The record there; raises `GolowError` if there is none or it cannot be read."""
        return import_module(self.store).load(place)

    def render(self, record: Any, **options: Any) -> None:
        """Print the record. options: those of `golow show`; the kind takes its own."""
        import_module(self.table).render(record, **self._own(options))

    def title(self, record: Any) -> str:
        """Title of its page."""
        return str(import_module(self.page).title(record))

    def sections(self, record: Any, name: str, **options: Any) -> list[Any]:
        """Its part of a page. options: those of `golow report`; the kind takes its own."""
        made: list[Any] = import_module(self.page).sections(record, name, **self._own(options))
        return made

    def _own(self, options: dict[str, Any]) -> dict[str, Any]:
        return {name: options[name] for name in self.options if name in options}


class _ExportedStudy(RecordKind):
    """Its file has any name: it is the CSV file itself or, as in a page, the only file of a
    folder."""

    __slots__ = ()

    def is_at(self, place: Path) -> bool:
        """True if it is such a file or folder."""
        return exported_study(place) is not None


LIFE = RecordKind(
    name="life",
    file="life.json",
    store="golow.programs.life.store",
    table="golow.report.life.table",
    page="golow.report.page.life",
)
QUANTIZED = RecordKind(
    name="quantization",
    file="quantized.json",
    store="golow.programs.quantization.store",
    table="golow.report.quantization.table",
    page="golow.report.page.quantization",
)
COMPARISON = RecordKind(
    name="comparison",
    file="comparison.json",
    store="golow.programs.comparison.store",
    table="golow.report.comparison.formats",
    page="golow.report.page.comparison",
    options=("by_layer", "columns", "form"),
    beside=(LIFE, QUANTIZED),
    by_file=True,
)
PROFILE = RecordKind(
    name="profile",
    file="profile.json",
    store="golow.programs.profiling.store",
    table="golow.report.profiling.table",
    page="golow.report.page.profile",
    options=("by", "sort", "top"),
    packed=("profile.json",),  # traces stay outside
    by_file=True,
)
KINDS = (
    RecordKind(
        name="study",
        file="study.toml",
        store="golow.report.study.rows",
        table="golow.report.study.table",
        page="golow.report.page.study",
        options=("paper",),
        packed=("**/*.json", "**/study.toml"),
        listed=False,
    ),
    _ExportedStudy(
        name="exported study",
        file="*.csv",
        store="golow.report.study.export",
        table="golow.report.study.table",
        page="golow.report.page.study",
        options=("paper",),
        packed=("[!.]*.csv",),
        listed=False,
    ),
    PROFILE,
    RecordKind(
        name="audit",
        file="audit.json",
        store="golow.programs.auditing.store",
        table="golow.report.audit.table",
        page="golow.report.page.audit",
        by_file=True,
    ),
    RecordKind(
        name="generation",
        file="generation.json",
        store="golow.programs.generation.store",
        table="golow.report.generation.table",
        page="golow.report.page.generation",
        by_file=True,
    ),
    RecordKind(
        name="load",
        file="load.json",
        store="golow.programs.load.store",
        table="golow.report.load.table",
        page="golow.report.page.load",
        by_file=True,
    ),
    RecordKind(
        name="quantization",
        file="quantization.json",
        store=QUANTIZED.store,
        table=QUANTIZED.table,
        page=QUANTIZED.page,
        by_file=True,
    ),
    RecordKind(
        name="training",
        file="plan.json",
        store="golow.programs.training.store",
        table="golow.report.training.table",
        page="golow.report.page.training",
    ),
    COMPARISON,
)
"""In the order in which `golow show` prints them. Of a folder with several, such as a comparison's
into which a profile was saved, it shows the first; lists and pages take the last."""


def kind_of(place: Path, kinds: Sequence[RecordKind] = KINDS) -> RecordKind | None:
    """The kind of the record at this place; None if it is none."""
    return next((kind for kind in reversed(kinds) if kind.is_at(place)), None)


def no_record(place: Path) -> GolowError:
    """The error for a place without a record. Raises `GolowError` if there is nothing at all."""
    require_there(place, NOTHING_THERE)
    return GolowError(
        f"{place} is not a golow record",
        f"give a folder that {WRITERS} wrote, a CSV file of golow study export, or a page of golow "
        "report.",
    )
