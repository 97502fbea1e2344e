"""The table of the kinds of record: every kind has all its parts, and `golow show`, `golow report`,
the list of a folder and Python find its records by them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import golow.api
from golow.report.page.file import unpacked
from golow.report.record_kinds import (
    COMPARISON,
    KINDS,
    LIFE,
    RecordKind,
    kind_of,
)
from golow.report.records import is_folder_of_records, records_in
from golow.report.study.export import export
from hostile import records
from support import command

ALL = (*KINDS, LIFE)
NAMES = [kind.name for kind in ALL]
OWN_NAME = {
    "comparison": "load",
    "load": "load_load_test",
}  # in golow's API; the others are load_audit and so on
NOT_IN_API = {"exported study"}  # pandas reads the CSV file


def tree(files: Callable[[], records.Tree]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        records.write(files(), folder)
        return folder

    return write


def exported_study(folder: Path) -> Path:
    """As it is in a page."""
    records.write(records.study_tree(), folder.with_name("study-before"))
    return export(folder.with_name("study-before"), "csv", folder / "rows.csv").parent


# A record of each kind: writes it into a folder, which it returns.
EXAMPLES = {
    "comparison": tree(lambda: records.comparison_tree(False)),
    "life": tree(records.life_tree),
    "audit": tree(records.audit_tree),
    "load": tree(records.load_tree),
    "generation": tree(records.generation_tree),
    "quantization": tree(records.quantization_tree),
    "training": tree(records.training_tree),
    "profile": tree(records.profile_tree),
    "study": tree(records.study_tree),
    "exported study": exported_study,
}


def lacking(kind: RecordKind) -> Iterator[str]:
    """What is missing of a kind's parts, in words."""
    takes = {
        "load": (kind.store, ("place",)),
        "render": (kind.table, ("record",)),
        "title": (kind.page, ("record",)),
        "sections": (kind.page, ("record", "name")),
    }
    if kind is LIFE:
        del takes["title"]  # a page is called by the comparison
    taken = set()
    for name, (module, given) in takes.items():
        part = getattr(import_module(module), name, None)
        if part is None:
            yield f"{module} has no {name}"
            continue
        taken |= {*inspect.signature(part).parameters}
        own = [one for one in kind.options if one in inspect.signature(part).parameters]
        try:
            inspect.signature(part).bind(*given, **dict.fromkeys(own))
        except TypeError as error:
            yield f"{module}.{name}: {error}"
    yield from (f"{kind.name} does not take {one}" for one in kind.options if one not in taken)


@pytest.mark.parametrize("kind", ALL, ids=NAMES)
def test_a_kind_has_all_its_parts(kind: RecordKind) -> None:
    assert list(lacking(kind)) == []
    load = OWN_NAME.get(kind.name, f"load_{kind.name}")
    assert load in golow.api.__all__ or kind.name in NOT_IN_API
    assert kind.name in EXAMPLES, "write an example of the kind in this file"


def test_a_missing_part_is_seen() -> None:
    audit = next(kind for kind in KINDS if kind.name == "audit")
    planted = audit._replace(page="golow.report.units", options=("sort",))
    assert list(lacking(planted)) == [
        "golow.report.units has no title",
        "golow.report.units has no sections",
        "audit does not take sort",
    ]
    no_record = audit._replace(table="golow.report.records")
    assert list(lacking(no_record)) == ["golow.report.records has no render"]
    swapped = audit._replace(store="golow.report.page.audit")
    assert list(lacking(swapped)) == ["golow.report.page.audit has no load"]


def test_kinds_are_told_apart() -> None:
    assert len({kind.file for kind in ALL}) == len({*NAMES}) == len(ALL)


@pytest.mark.parametrize("kind", ALL, ids=NAMES)
def test_the_file_of_a_kind_is_what_its_store_writes(kind: RecordKind, tmp_path: Path) -> None:
    file = getattr(import_module(kind.store), "FILE", None)
    assert file is None or (file.name, file.what.split()[0]) == (kind.file, kind.name)
    place = EXAMPLES[kind.name](tmp_path / "it")
    assert len([*place.glob(kind.file)]) == 1


@pytest.mark.parametrize("kind", KINDS, ids=NAMES[: len(KINDS)])
def test_a_record_is_known_read_printed_and_reported(kind: RecordKind, tmp_path: Path) -> None:
    place = EXAMPLES[kind.name](tmp_path / "it")
    assert [one.name for one in KINDS if one.is_at(place)] == [kind.name]
    record = kind.load(place)
    shown = command.golow("show", str(place))
    assert (shown.status, shown.error) == (0, "") and shown.output
    page = tmp_path / "page.html"
    assert command.golow("report", str(place), "--out", str(page)).status == 0
    assert kind.title(record) in page.read_text()
    with unpacked(page) as [inside]:
        assert kind_of(inside) is kind
        again = kind.load(inside)
        assert type(again) is type(record)
        if kind is not COMPARISON:  # its errors may be NaN
            assert msgspec.to_builtins(again) == msgspec.to_builtins(record)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES[: len(KINDS)])
def test_the_file_alone_is_taken_where_the_table_says_so(kind: RecordKind, tmp_path: Path) -> None:
    place = EXAMPLES[kind.name](tmp_path / "it")
    [file] = place.glob(kind.file)
    if kind.by_file or kind.name == "exported study":
        assert kind.is_named(file)
        assert command.golow("show", str(file)).output == command.golow("show", str(place)).output
    else:
        assert not kind.is_named(file)
        ended = command.golow("show", str(file))
        assert ended.status == 2 and "is not a golow record" in ended.error


def test_what_lies_beside_a_comparison_is_shown_with_it(tmp_path: Path) -> None:
    place = EXAMPLES["life"](tmp_path / "it")
    assert kind_of(place) is COMPARISON and COMPARISON.kinds_beside(place) == [LIFE]
    assert "life cycle" in command.golow("show", str(place)).output
    (place / LIFE.file).unlink()
    assert COMPARISON.kinds_beside(place) == []
    assert "life cycle" not in command.golow("show", str(place)).output


def test_a_folder_lists_the_kinds_that_are_listed(tmp_path: Path) -> None:
    for name, write in EXAMPLES.items():
        write(tmp_path / "runs" / name)
    assert is_folder_of_records(tmp_path / "runs")
    found = {one.name: one.kind for one in records_in(tmp_path / "runs")}
    listed = {kind.name: kind.name for kind in KINDS if kind.listed}
    assert found == listed | {"life": "comparison"}
    findings = {one.kind: one.says for one in records_in(tmp_path / "runs")}
    assert all(findings.values()), findings
    (tmp_path / "runs" / "audit" / "audit.json").write_text("{}")
    damaged = {one.name: one.says for one in records_in(tmp_path / "runs")}
    assert damaged["audit"] == "cannot be read"
    assert not any(is_folder_of_records(tmp_path / "runs" / name) for name in EXAMPLES)


def test_options_of_comparisons_are_refused_for_other_records(tmp_path: Path) -> None:
    place = EXAMPLES["audit"](tmp_path / "it")
    for option in (("--format", "csv"), ("--columns", "time"), ("--by-layer",)):
        ended = command.golow("show", str(place), *option)
        assert ended.status == 2 and "different kind of record: audit" in ended.error
    both = EXAMPLES["comparison"](tmp_path / "comparison")
    assert command.golow("show", str(place), str(both), "--columns", "time").status == 0


@pytest.mark.slow
def test_of_a_folder_with_several_the_list_names_the_comparison(tmp_path: Path) -> None:
    """`golow show` prints the profile that was saved into it; it always did."""
    place = EXAMPLES["comparison"](tmp_path / "it")
    EXAMPLES["profile"](place)
    assert kind_of(place) is COMPARISON
    assert [one.kind for one in records_in(tmp_path)] == ["comparison"]
    alone = EXAMPLES["profile"](tmp_path / "alone")
    assert command.golow("show", str(place)).output == command.golow("show", str(alone)).output
