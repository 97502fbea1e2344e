"""The folder of a saved profile: ``profile.json``, and the trace of each level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.records.errors import GolowError
from golow.records.record import Record, encode
from golow.storage.files import read_json, write_whole, writing
from golow.storage.record_file import RecordFile

FILE = RecordFile("profile.json", "profile", 1, "give a folder that `golow profile --save` wrote.")
HINT = "name another folder with --save."


class Profiles(Record, frozen=True, kw_only=True):
    """Content of the file: one profile a precision."""

    format_version: int = FILE.version
    profiles: tuple[Profile, ...]


def make_folder(folder: Path) -> None:
    """Make the folder for a profile; raises `GolowError` if there is one already."""
    if FILE.is_at(folder):
        raise GolowError(f"{folder} holds a profile already", HINT)
    with writing(folder, HINT):
        folder.mkdir(parents=True, exist_ok=True)


def save(profiles: tuple[Profile, ...], folder: Path) -> None:
    """Write the profiles into the folder, beside their traces."""
    with writing(folder, HINT):
        write_whole(folder / FILE.name, encode(Profiles(profiles=profiles)))


def load(place: Path) -> tuple[Profile, ...]:
    """The profiles in that folder or file; raises `GolowError` if they cannot be read."""
    file = FILE.at(place)
    found = read_json(file, Profiles)
    FILE.require_version(file, found.format_version)
    wrong = next((words for level in _levels(found) if (words := _broken(level))), "")
    if wrong or not found.profiles:
        raise GolowError(f"{file} is not a profile: {wrong or 'it is empty'}")
    return found.profiles


def _levels(found: Profiles) -> Iterator[LevelProfile]:
    for profile in found.profiles:
        yield from profile.levels


def _broken(level: LevelProfile) -> str:
    """Describe a violation of conditions that types do not express and reports rely on; empty if
    none."""
    if not level.level or not level.level.isprintable():
        return f"the level {level.level!r} is not a name"
    if bool(level.summary) != bool(level.profiled):
        return f"{level.level} has a summary without a time, or a time without one"
    lengths = {len(step.ns) for step in level.layers}
    if lengths and (len(lengths) > 1 or 0 in lengths or not all(s.modules for s in level.layers)):
        return f"{level.level} has layers without times or modules"
    if any(kernel.calls <= 0 for kernel in level.kernels):
        return f"{level.level} has a kernel without calls"
    return ""
