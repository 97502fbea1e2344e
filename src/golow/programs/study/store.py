"""Studies on disk: one folder per cell, which is either complete or absent.

``NAME/study.toml``; ``NAME/cells/ENVIRONMENT/environment.json`` and, beside it, ``KEY/`` with
``cell.json`` and the folder of its comparison. A cell in progress is in ``NAME/drafts/`` and is
renamed when it is complete. If the cell is there already, its comparison moves beside the old one
and ``cell.json``, which names one of them, is replaced. Cells of different environments are in
different folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from golow.measure.environment import unlike
from golow.measure.words import LEAST_ROUNDS
from golow.programs.comparison import store
from golow.programs.generation import store as generation_store
from golow.programs.generation.generation_record import Generation
from golow.programs.load import store as load_store
from golow.programs.load.load_record import LoadTest
from golow.programs.study.study_record import FORMAT_VERSION, CellRecord, Study
from golow.records.comparison import Comparison, Environment
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.records.workload import Device
from golow.storage.files import is_file, read_json, read_text, write_whole, writing
from golow.storage.lock import held
from golow.storage.names import is_plain_name
from golow.storage.shell_words import shell_word

# Seconds to wait for the lock of a study: a process that a killed study was about to start may
# still hold it for a moment.
PATIENCE = 1.0
DIGEST_LENGTH = 8  # hexadecimal digits in the name of an environment's folder


class StudyFolder:
    """The folder of one study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells, self.drafts = path / "cells", path / "drafts"
        self.file = path / "study.toml"

    # ------------------------------------------------------------ the request

    def write_study(self, study: Study) -> None:
        """Store the request; existing cells that it no longer includes are kept."""
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.file, to_toml(study).encode())

    def study(self) -> Study:
        """The request as stored. Raises `GolowError` if there is no study or it cannot be
        read."""
        if not is_file(self.file):
            raise GolowError(
                f"there is no study in {self.path}", "name a folder that `golow study run` wrote."
            )
        try:
            return msgspec.convert(tomllib.loads(read_text(self.file)), Study)
        except (ValueError, RecursionError) as error:
            raise GolowError(f"{self.file} cannot be read: {error}") from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the study for this process; the lock is released however the block ends. Removes
        what an earlier run left unfinished."""
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
        taken = f"another golow is running the study in {self.path}"
        with held(self.path, taken, self._hint, PATIENCE):
            self._tidy()
            try:
                yield
            finally:
                self._tidy()

    # ------------------------------------------------------------ where cells were measured

    def environments(self) -> dict[str, Environment]:
        """Every environment that has cells, by the name of its folder."""
        found = {}
        for file in sorted(self.cells.glob("*/environment.json")):
            found[file.parent.name] = read_json(file, Environment)
        return found

    def environment(self, machine: Environment, device: Device) -> str:
        """The name of the folder for this environment: that of a stored one like it, or a new
        one."""
        for name, known in self.environments().items():
            if not unlike(known, machine, device):
                return name
        name = hashlib.sha256(msgspec.json.encode(machine, order="sorted")).hexdigest()
        name = name[:DIGEST_LENGTH]
        with self._writing():
            (self.cells / name).mkdir(parents=True, exist_ok=True)
            write_whole(self.cells / name / "environment.json", encode(machine))
        return name

    # ------------------------------------------------------------ cells

    def records(self, environment: str) -> dict[str, CellRecord]:
        """Every stored record, by its key, without those that cannot be read."""
        found = {}
        for file in sorted((self.cells / environment).glob("*/cell.json")):
            record = _read(file)
            if record is not None and record.key == file.parent.name:
                found[record.key] = self._judged(record)
        return found

    def comparison(self, record: CellRecord) -> Comparison:
        """The comparison of a cell that is done. Raises `GolowError` for a cell without one."""
        if not record.cell.is_compared:
            kind = "load tests" if record.cell.load is not None else "generations"
            raise GolowError(
                f"the cells of {self.path.name} are {kind}, not comparisons",
                "golow study show and golow study export show them; golow report shows each "
                "folder below cells/.",
            )
        return store.load(self._place(record) / record.comparison)

    def load_test(self, record: CellRecord) -> LoadTest:
        """The load test of a cell that is done."""
        return load_store.load(self._place(record) / record.comparison)

    def generation(self, record: CellRecord) -> Generation:
        """The text generation of a cell that is done."""
        return generation_store.load(self._place(record) / record.comparison)

    def timed(self, record: CellRecord) -> store.Timed:
        """The rounds of a cell that has a comparison."""
        return store.timed(self._place(record) / record.comparison)

    def draft(self) -> Path:
        """Create a folder for a cell in progress."""
        with self._writing():
            self.drafts.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(dir=self.drafts))

    def keep(self, record: CellRecord, draft: Path) -> CellRecord:
        """Make the draft the cell's folder, with this record; from now on the cell counts. What was
        there counts until then. Returns the record as `records` will."""
        place = self._place(record)
        with self._writing():
            if place.exists():
                record = _moved_into(place, record, draft)
            else:
                write_whole(draft / "cell.json", encode(record))
                draft.chmod(0o755)
                place.parent.mkdir(parents=True, exist_ok=True)
                draft.rename(place)
                _flush(place.parent)
        return self._judged(record)

    def _judged(self, record: CellRecord) -> CellRecord:
        """The record with its state: unclear if a level was timed in too few rounds."""
        if record.state != "done" or not record.cell.is_compared:
            return record
        try:
            rounds = self.timed(record).rounds.values()
        except GolowError:  # loading the comparison reports it
            return record
        few = min(rounds, default=LEAST_ROUNDS) < LEAST_ROUNDS
        return msgspec.structs.replace(record, state="unclear") if few else record

    def _tidy(self) -> None:
        """Remove unfinished files and folders."""
        shutil.rmtree(self.drafts, ignore_errors=True)
        for file in self.cells.glob("*/*/cell.json"):
            if sum(1 for _ in file.parent.iterdir()) > 2 and (record := _read(file)) is not None:
                _remove_others(file.parent, record)
        for file in (*self.path.glob(".study.toml.*"), *self.cells.glob("*/.environment.json.*")):
            file.unlink(missing_ok=True)

    def _place(self, record: CellRecord) -> Path:
        return self.cells / record.environment / record.key

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with writing(self.path, self._hint):
            yield

    @property
    def _hint(self) -> str:
        return f"free some space, then run golow study resume {shell_word(self.path)}."


def to_toml(study: Study) -> str:
    """The study as a study file, with every default written out."""
    fields = msgspec.to_builtins(study)
    tables = {name: fields.pop(name) for name in ("load", "generation", "limits")}
    parts = [["", f"[{name}]", *_lines(table)] for name, table in tables.items() if table]
    return "\n".join([*_lines(fields), *chain(*parts), ""])


def _lines(fields: dict[str, Any]) -> list[str]:
    """Text, numbers and lists are written as in JSON; None and what is empty is left out."""
    return [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
        if value not in (None, "", [])
    ]


def _moved_into(place: Path, record: CellRecord, draft: Path) -> CellRecord:
    """Replace the cell in that folder with the draft: at every moment its record names a comparison
    that is there. Returns the record."""
    if record.comparison:
        name = record.comparison
        while (place / name).exists():
            name += "-again"
        (draft / record.comparison).rename(place / name)
        record = msgspec.structs.replace(record, comparison=name)
        _flush(place)
    write_whole(place / "cell.json", encode(record))
    shutil.rmtree(draft)
    _remove_others(place, record)
    return record


def _remove_others(place: Path, record: CellRecord) -> None:
    """Remove what the record of the cell in that folder does not name."""
    for entry in place.iterdir():
        if entry.is_dir() and entry.name != record.comparison:
            shutil.rmtree(entry)
        elif not entry.is_dir() and entry.name != "cell.json":
            entry.unlink()


def _read(file: Path) -> CellRecord | None:
    try:
        record = read_json(file, CellRecord)
    except GolowError:
        return None
    names = (record.key, record.environment or "none", record.comparison or "none")
    sound = record.format_version <= FORMAT_VERSION and all(map(is_plain_name, names))
    return record if sound else None


def _flush(folder: Path) -> None:
    """Write the folder's list of names through to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
