"""Text generations on disk: one folder each, with ``generation.json``."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from golow.programs.generation.generation_record import (
    FORMAT_VERSION,
    Generation,
    TextCase,
    TextRun,
)
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.storage.files import read_json, write_whole, writing
from golow.storage.names import is_plain_name
from golow.storage.record_file import RecordFile
from golow.storage.record_folder import filled, own_folder

FILE = RecordFile(
    "generation.json", "generation", FORMAT_VERSION, "give a folder that `golow generate` wrote."
)
HINT = "free some space or name another folder with --out."


def save(found: Generation, parent: Path) -> Path:
    """Write the record into its own folder under parent; returns that folder."""
    with writing(parent, HINT):
        folder = own_folder(parent, found.id, lambda place: _holds(place, found))
    with filled(folder, HINT):
        write_whole(folder / FILE.name, _encoded(found, folder))
    return folder


def load(place: Path) -> Generation:
    """Read the text generation in that folder or file; raises `GolowError` if it cannot be read."""
    file = FILE.at(place)
    found = read_json(file, Generation)
    FILE.require_version(file, found.format_version)
    if wrong := _broken(found):
        raise GolowError(f"{file} is not a generation: {wrong}")
    return found


def _encoded(found: Generation, folder: Path) -> bytes:
    return encode(msgspec.structs.replace(found, id=folder.name))


def _holds(folder: Path, found: Generation) -> bool:
    try:
        return (folder / FILE.name).read_bytes() == _encoded(found, folder)
    except OSError:
        return False


def _broken(found: Generation) -> str:
    """Describe a violation of conditions that types do not express and reports rely on; empty if
    none."""
    if not is_plain_name(found.id):
        return f"its id {found.id!r} is not a folder name"
    if not found.cases:
        return "it has no batch size"
    rate = found.read_rate
    if rate is not None and not 0 < rate.value < math.inf:
        return "the machine's memory has no rate"
    return next((said for case in found.cases if (said := _broken_case(case))), "")


def _broken_case(case: TextCase) -> str:
    work = case.workload
    if min(work.batch, work.prompt, work.tokens - 1, work.vocabulary) < 1:
        return "a workload has no text"
    ordered = (1, *sorted(work.prompts), work.prompt)
    if len(work.prompts) != work.batch or list(ordered) != sorted(ordered):
        return "the lengths of texts are not those of the workload"
    if work.weight_bytes + work.cache_bytes < 1:
        return "a step reads nothing"
    return next((said for run in case.runs if (said := _broken_run(run, work.tokens))), "")


def _broken_run(run: TextRun, tokens: int) -> str:
    if not run.level or not run.level.isprintable():
        return f"the level {run.level!r} is not a name"
    if any(len(block.host_ns) != tokens or min(block.host_ns) < 1 for block in run.blocks):
        return f"{run.level} has a block without a time for each token"
    times = [one.value for one in (run.token, run.first_token, run.slow_token) if one is not None]
    if times and (len(times) < 3 or not run.blocks or not min(times) > 0):
        return f"{run.level} has no whole set of times"
    if run.departure is not None and not 0 <= run.departure.token < tokens:
        return f"{run.level} leaves the baseline at a token that is not there"
    return ""
