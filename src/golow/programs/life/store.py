"""The life cycle in a comparison's folder: ``life.json``."""

from __future__ import annotations

from pathlib import Path

from golow.programs.life.life_record import FORMAT_VERSION, Change, LevelLife, Life, LifeCycle
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.storage.files import read_json, write_whole, writing
from golow.storage.record_file import RecordFile

FILE = RecordFile(
    "life.json", "life cycle", FORMAT_VERSION, "give a folder that `golow compare --life` wrote."
)
HINT = "free some space or name another folder with --out."


def save(found: LifeCycle, folder: Path) -> None:
    """Write the record into the folder of its comparison."""
    with writing(folder, HINT):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE.name, encode(found))


def load(place: Path) -> LifeCycle:
    """The life cycle in that folder or file; raises `GolowError` if it cannot be read."""
    file = FILE.at(place)
    found = read_json(file, LifeCycle)
    FILE.require_version(file, found.format_version)
    wrong = next((words for level in found.levels if (words := _broken(level))), "")
    if wrong:
        raise GolowError(f"{file} is not a life cycle: {wrong}")
    return found


def _broken(level: LevelLife) -> str:
    """Describe a violation of conditions that types do not express and reports rely on; empty if
    none."""
    if not level.level or not level.level.isprintable():
        return f"the level {level.level!r} is not a name"
    each: list[Life | Change] = [*level.lives, *level.changes]
    if any("first_iteration" not in one.seconds or not one.iterations for one in each):
        return f"{level.level} has a life without an iteration"
    if any(not 0 <= s < float("inf") for one in each for s in one.seconds.values()):
        return f"{level.level} has a stage without a time"
    if any(one.settled_after is not None and one.settled_after < 1 for one in each):
        return f"{level.level} has a life that settled before its first iteration"
    return ""
