"""Audits on disk: a folder per audit, with ``audit.json`` and a file for each run.

The runs hold every raw sample, which makes them large; ``audit.json`` names their files, so that
each is small enough to be read whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from golow.programs.auditing.audit_record import Audit, AuditedLevel, Price
from golow.programs.comparison.store import with_errors
from golow.records.comparison import Ratio
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.storage.files import read_json, write_whole, writing
from golow.storage.names import file_name, is_plain_name
from golow.storage.record_file import RecordFile
from golow.storage.record_folder import filled, own_folder

FILE = RecordFile("audit.json", "audit", 1, "give a folder that `golow audit` wrote.")
HINT = "free some space or name another folder with --out."
LONGEST_NAME = 80  # bytes of a level's name in that of a file


def save(audit: Audit, parent: Path) -> Path:
    """Write the audit into its own folder under parent, ``audit.json`` last; returns that folder.

    Raises `GolowError` if the disk is full or the folder cannot be written.
    """
    with writing(parent, HINT):
        folder = own_folder(parent, audit.id, lambda found: _holds(found, audit))
    files = _files(audit, folder.name)
    with filled(folder, HINT):
        for name, data in files.items():
            write_whole(folder / name, data)
    return folder


def _files(audit: Audit, name: str) -> dict[str, bytes]:
    """The files of an audit with this id, ``audit.json`` last."""
    audit = msgspec.structs.replace(audit, id=name)
    tree = {"format_version": FILE.version, **msgspec.to_builtins(audit)}
    files = {}
    for number, holder in enumerate(_holders(tree)):
        file = f"{number:03}-{file_name(holder['run']['level'], LONGEST_NAME)}.json"
        files[file] = encode(holder["run"])
        holder["run"] = file
    return {**files, FILE.name: encode(tree)}


def _holds(folder: Path, audit: Audit) -> bool:
    """True if the folder holds this audit."""
    try:
        return (folder / FILE.name).read_bytes() == _files(audit, folder.name)[FILE.name]
    except OSError:
        return False


def load(place: Path) -> Audit:
    """The audit in that folder or file; raises `GolowError` if it cannot be read."""
    file = FILE.at(place)
    tree = read_json(file, dict[str, Any])
    FILE.require_version(file, tree.get("format_version"))
    try:
        for holder in _holders(tree):
            name = msgspec.convert(holder.get("run"), str)
            if Path(name).name != name:
                raise msgspec.ValidationError(f"{name!r} is not the name of a file in its folder")
            holder["run"] = with_errors(read_json(file.parent / name, dict[str, Any]))
        audit = msgspec.convert(tree, Audit)
        _require_whole(audit)
    except (msgspec.ValidationError, RecursionError) as error:
        raise GolowError(f"{file} is not an audit: {error}") from error
    return audit


def _holders(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of the record that have a run: levels, their prices and their best combination.
    Raises `msgspec.ValidationError` where there are none such."""
    for level in _parts(tree, "levels"):
        yield level
        yield from _parts(level, "prices")
        if level.get("best") is not None:
            yield from _parts({"best": [level["best"]]}, "best")


def _parts(tree: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The records in this field, which can be changed in place."""
    found: list[dict[str, Any]] = tree.get(name, [])
    msgspec.convert(found, list[dict[str, Any]])  # raises where they are none
    return found


def _require_whole(audit: Audit) -> None:
    """Raise for violations of conditions that types do not express and reports rely on."""
    if not is_plain_name(audit.id):
        raise msgspec.ValidationError(f"its id {audit.id!r} is not a folder name")
    if not audit.workload.inputs:
        raise msgspec.ValidationError("its workload has no inputs")
    for level in audit.levels:
        _require_level(level)
        for price in level.prices:
            _require_price(price)


def _require_level(level: AuditedLevel) -> None:
    runs = [level.run, *(price.run for price in level.prices)]
    if level.best is not None:
        runs.append(level.best.run)
    for run in runs:
        if not run.level or not run.level.isprintable():
            raise msgspec.ValidationError(f"the level {run.level!r} is not a name")
        if run.ratio is not None and run.time is None:
            raise msgspec.ValidationError(f"{run.level} has a ratio, but no time")
        if run.ratio is not None:
            _require_positive(run.level, run.ratio)


def _require_positive(level: str, ratio: Ratio) -> None:
    """Figures draw ratios on a logarithmic axis."""
    if min(ratio.value, ratio.low, ratio.high) <= 0:
        raise msgspec.ValidationError(f"{level} has a ratio that is not positive")


def _require_price(price: Price) -> None:
    if price.confirmed is not None:
        _require_positive(price.run.level, price.confirmed)
    if price.finding in ("faster", "slower", "refuted") and price.effect is None:
        raise msgspec.ValidationError(f"{price.run.level} is {price.finding} without a ratio")
