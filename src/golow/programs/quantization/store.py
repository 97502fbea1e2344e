"""Quantisations on disk: a folder with ``quantization.json``, or a file next to a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from golow.programs.quantization.quantization_record import Quantization
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.storage.files import read_json, write_whole, writing
from golow.storage.names import is_plain_name
from golow.storage.record_file import RecordFile
from golow.storage.record_folder import filled, own_folder

FILE = RecordFile(
    "quantization.json", "quantization", 1, "give a folder that `golow quantize` wrote."
)
BESIDE = FILE._replace(name="quantized.json")
"""The file in a comparison of the quantised network."""
HINT = "free some space or name another folder with --record."


def save(record: Quantization, parent: Path) -> Path:
    """Write the record into its own folder under parent; returns that folder. Raises `GolowError`
    if the disk is full or the folder cannot be written."""
    with writing(parent, HINT):
        folder = own_folder(parent, record.id, lambda found: _holds(found, record))
    record = msgspec.structs.replace(record, id=folder.name)
    with filled(folder, HINT):
        write_whole(folder / FILE.name, _encoded(record))
    return folder


def save_beside(record: Quantization, folder: Path) -> None:
    """Write the record into the folder of a comparison."""
    with filled(folder, HINT):
        write_whole(folder / BESIDE.name, _encoded(record))


def load(place: Path) -> Quantization:
    """The record in that folder or file; raises `GolowError` if it cannot be read."""
    file = (BESIDE if BESIDE.is_at(place) else FILE).at(place)
    tree = read_json(file, dict[str, Any])
    FILE.require_version(file, tree.get("format_version"))
    try:
        record = msgspec.convert(tree, Quantization)
        if not is_plain_name(record.id):
            raise msgspec.ValidationError(f"its id {record.id!r} is not a folder name")
        if not record.workload.inputs:
            raise msgspec.ValidationError("its workload has no inputs")
    except (msgspec.ValidationError, RecursionError) as error:
        raise GolowError(f"{file} is not a quantization: {error}") from error
    return record


def _encoded(record: Quantization) -> bytes:
    return encode({"format_version": FILE.version, **msgspec.to_builtins(record)})


def _holds(folder: Path, record: Quantization) -> bool:
    try:
        return (folder / FILE.name).read_bytes() == _encoded(record)
    except OSError:
        return False
