"""A study as one table: one row per cell and level, as CSV, JSON, Parquet or a data frame.

docs/use/studies_export.md lists the columns with their units. The columns and their types are the
same for every study; a missing value is None: an empty cell in CSV, null in JSON and Parquet.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from golow.records.errors import GolowError
from golow.report.study.rows import StudyRow
from golow.report.study.rows import load as load_study
from golow.storage.files import is_file, is_folder, read_text, write_whole, writing
from golow.storage.spreadsheet import from_cell, to_csv

if TYPE_CHECKING:
    import pandas

HINT = "give a file that golow study export wrote."
PLAIN: dict[type[inspect.Type], type] = {
    inspect.StrType: str,
    inspect.LiteralType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
}
# pandas' types that can hold integers, booleans and text together with missing values.
PANDAS = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the study in that folder, in the order of its axes; plain values or None. Raises
    `GolowError` where there is no study."""
    return [msgspec.structs.asdict(row) for row in load_study(folder)]


def export(folder: Path, format: str, file: Path) -> Path:
    """Write the rows of the study in that folder into the file, whole or not at all.

    Raises `GolowError` if there is no study, for a format other than csv, json or parquet, if a
    package that the format needs is missing, or if the file cannot be written.
    """
    if format not in WRITERS:
        raise GolowError(f"studies cannot be exported as {format}", f"use {', '.join(WRITERS)}.")
    data = WRITERS[format](folder)
    with writing(file, "free some space or name another file."):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, data)
    return file


def exported_study(place: Path) -> Path | None:
    """The CSV file of an exported study: this file, or the only one in this folder, as it is in a
    page; None if it is neither."""
    if is_folder(place):
        inside = [one for one in place.iterdir() if one.name[:1] != "."]
        place = inside[0] if len(inside) == 1 else place
    return place if place.suffix == ".csv" and is_file(place) else None


def load(place: Path) -> list[StudyRow]:
    """The rows of the exported study that is this file, or is in this folder; raises `GolowError`
    if there is none."""
    file = exported_study(place)
    if file is None:
        raise GolowError(f"{place} has no exported study", HINT)
    return read_csv(file)


def read_csv(file: Path) -> list[StudyRow]:
    """The rows of a CSV file that `export` wrote; raises `GolowError` if it is none. An empty text
    and a missing one are the same in CSV: what may be missing is taken to be."""
    lines = csv.DictReader(io.StringIO(read_text(file, HINT), newline=""))
    try:
        return _rows_of(lines, file)
    except csv.Error as error:
        raise GolowError(f"{file}, line {lines.line_num}: {error}", HINT) from error


def _rows_of(lines: csv.DictReader[str], file: Path) -> list[StudyRow]:
    """The rows. Raises `GolowError` for another table, and `csv.Error` for what is none."""
    missing = {*columns()} - {*(lines.fieldnames or ())}
    if missing:
        first = next(name for name in columns() if name in missing)
        raise GolowError(f"{file} is not an exported study: it has no column {first!r}", HINT)
    found = []
    for row in lines:
        try:
            found.append(msgspec.convert(_known(row), StudyRow, strict=False))
        except msgspec.ValidationError as error:
            raise GolowError(f"{file}, line {lines.line_num}: {error}", HINT) from error
    return found


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """The row's values, None for an empty cell that may be missing."""
    return {
        name: None if row[name] in ("", None) and name in OPTIONAL else from_cell(row[name] or "")
        for name in columns()
    }


def to_pandas(folder: Path) -> pandas.DataFrame:
    """The rows as a data frame with a type for each column. Needs ``pip install golow[pandas]``."""
    try:
        import pandas
    except ImportError as error:
        raise GolowError("pandas is not installed", "pip install 'golow[pandas]'") from error
    found = rows(folder)
    return pandas.DataFrame(
        {
            name: pandas.array([row[name] for row in found], dtype=PANDAS[kind])
            for name, kind in columns().items()
        }
    )


def columns() -> dict[str, type]:
    """The type of each column, in their order: str, int, float or bool."""
    record = inspect.type_info(StudyRow)
    assert isinstance(record, inspect.StructType)  # noqa: S101
    return {field.name: _plain(field.type) for field in record.fields}


def _may_be_missing() -> frozenset[str]:
    record = inspect.type_info(StudyRow)
    assert isinstance(record, inspect.StructType)  # noqa: S101
    kinds = {field.name: field.type for field in record.fields}
    return frozenset(
        name
        for name, kind in kinds.items()
        if isinstance(kind, inspect.UnionType) and kind.includes_none
    )


OPTIONAL = _may_be_missing()
"""The columns whose value may be None."""


def _plain(found: inspect.Type) -> type:
    """The type of a column that may have missing values."""
    kinds = found.types if isinstance(found, inspect.UnionType) else (found,)
    return next(PLAIN[type(kind)] for kind in kinds if type(kind) in PLAIN)


# ---------------------------------------------------------------- formats


def _csv(folder: Path) -> bytes:
    return to_csv(rows(folder), list(columns())).encode()


def _json(folder: Path) -> bytes:
    return msgspec.json.format(msgspec.json.encode(rows(folder))) + b"\n"


def _parquet(folder: Path) -> bytes:
    frame, data = to_pandas(folder), io.BytesIO()
    try:
        frame.to_parquet(data, engine="pyarrow", index=False)
    except ImportError as error:
        raise GolowError(
            "Parquet needs pyarrow, which is not installed", "pip install 'golow[parquet]'"
        ) from error
    return data.getvalue()


WRITERS: dict[str, Callable[[Path], bytes]] = {"csv": _csv, "json": _json, "parquet": _parquet}
