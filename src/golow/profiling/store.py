"""The folder of a saved profile: ``profile.json``, and the trace of each level."""

from __future__ import annotations

from pathlib import Path

from golow.files import is_folder, read_json, write_whole, writing
from golow.profiling.record import Profile
from golow.record import GolowError, Record, encode

FILE = "profile.json"
HINT = "name another folder: --save FOLDER."


class Profiles(Record, frozen=True, kw_only=True):
    """What is in the file: one profile a precision."""

    format_version: int = 1
    profiles: tuple[Profile, ...]


def make_folder(folder: Path) -> None:
    """Make the folder for a profile; raises `GolowError` if there is one already."""
    if is_profile(folder):
        raise GolowError(f"{folder} holds a profile already", HINT)
    with writing(folder, HINT):
        folder.mkdir(parents=True, exist_ok=True)


def save(profiles: tuple[Profile, ...], folder: Path) -> None:
    """Write the profiles into the folder, beside their traces."""
    with writing(folder, HINT):
        write_whole(folder / FILE, encode(Profiles(profiles=profiles)))


def is_profile(place: Path) -> bool:
    """Whether the folder, or the file, is a saved profile."""
    return (place / FILE).is_file() if is_folder(place) else place.name == FILE


def load(place: Path) -> tuple[Profile, ...]:
    """The profiles in that folder or file; raises `GolowError` if they cannot be read."""
    return read_json(place / FILE if is_folder(place) else place, Profiles).profiles
