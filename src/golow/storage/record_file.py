"""The file that makes a folder a record, for records whose format has one version: where it is
stored, and whether this golow reads it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from golow.records.errors import GolowError
from golow.storage.files import is_folder


class RecordFile(NamedTuple):
    """name: of the file. what: the record, in a word or two. version: of its format. hint: where
    such a record comes from."""

    name: str
    what: str
    version: int
    hint: str

    def is_at(self, place: Path) -> bool:
        """True if the folder holds such a record, or the file is one."""
        return (place / self.name).is_file() if is_folder(place) else place.name == self.name

    def at(self, place: Path) -> Path:
        """The file in that folder, or the file itself; raises `GolowError` if it is not there."""
        if not self.is_at(place):
            raise GolowError(f"there is no {self.what} in {place}", self.hint)
        return place / self.name if is_folder(place) else place

    def require_version(self, file: Path, version: object) -> None:
        """Raise `GolowError` for a file of another version."""
        if version != self.version:
            raise GolowError(
                f"{file} has format version {version}; this golow reads {self.version}",
                "a newer golow may have written it: pip install --upgrade golow",
            )
