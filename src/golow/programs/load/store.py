"""Load tests on disk: one folder each, with ``load.json``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from golow.programs.load.load_record import FORMAT_VERSION, LevelLoad, LoadTest
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.storage.files import read_json, write_whole, writing
from golow.storage.names import is_plain_name
from golow.storage.record_file import RecordFile
from golow.storage.record_folder import filled, own_folder

FILE = RecordFile(
    "load.json", "load test", FORMAT_VERSION, "give a folder that `golow load` wrote."
)
HINT = "free some space or name another folder with --out."


def save(found: LoadTest, parent: Path) -> Path:
    """Write the record into its own folder under parent; returns that folder. Raises `GolowError`
    if the disk is full or the folder cannot be written."""
    with writing(parent, HINT):
        folder = own_folder(parent, found.id, lambda place: _holds(place, found))
    with filled(folder, HINT):
        write_whole(folder / FILE.name, _encoded(found, folder.name))
    return folder


def load(place: Path) -> LoadTest:
    """The load test in that folder or file; raises `GolowError` if it cannot be read."""
    file = FILE.at(place)
    found = read_json(file, LoadTest)
    FILE.require_version(file, found.format_version)
    if wrong := _broken(found):
        raise GolowError(f"{file} is not a load test: {wrong}")
    return found


def _encoded(found: LoadTest, name: str) -> bytes:
    return encode(msgspec.structs.replace(found, id=name))


def _holds(folder: Path, found: LoadTest) -> bool:
    try:
        return (folder / FILE.name).read_bytes() == _encoded(found, folder.name)
    except OSError:
        return False


def _broken(found: LoadTest) -> str:
    """Describe a violation of conditions that types do not express and reports rely on; empty if
    none."""
    if not is_plain_name(found.id):
        return f"its id {found.id!r} is not a folder name"
    if not found.workload.inputs:
        return "its workload has no inputs"
    if not 0.5 <= found.plan.percentile < 1:
        return f"{found.plan.percentile} is not a percentile"
    return next((words for level in found.levels if (words := _wrong(level))), "")


def _wrong(level: LevelLoad) -> str:
    if not level.level or not level.level.isprintable():
        return f"the level {level.level!r} is not a name"
    for run in level.runs:
        if len(run.arrivals) != len(run.latencies):
            return f"{level.level} has a run with {len(run.arrivals)} arrivals for its latencies"
        if run.first_tokens and (run.tokens < 2 or len(run.first_tokens) != len(run.latencies)):
            return f"{level.level} has a run without a first token, and others, of each text"
        if any(one <= 0 for one in run.latencies):
            return f"{level.level} has a latency that is not positive"
        if run.rate is not None and not 0 < run.rate < float("inf"):
            return f"{level.level} has a run at a rate of {run.rate}"
        if any(batch.size < 1 or batch.bucket < batch.size for batch in run.batches) or any(
            not batch.size <= batch.tokens <= batch.ran for batch in run.batches
        ):
            return f"{level.level} has a batch that is larger than its bucket"
    return ""
