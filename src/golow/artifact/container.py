"""The one file of an artifact: a ZIP archive without compression, whose entries are known by their
digests.

Nothing of it is believed before it is verified, and nothing is allocated for a size that it only
states: without compression, an entry cannot be larger than the file.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from golow.records.errors import GolowError

Entries = Iterator[tuple[str, bytes]]
"""Names and contents."""
SEAL = "seal.json"
"""The digests of all other entries."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_LOCAL_HEADER = struct.Struct("<26xHH")  # ends with the lengths of the name and of what is behind
_MOST_SMALL = 1 << 28  # bytes of an entry that is read whole
_BROKEN = (
    zipfile.BadZipFile, OSError, EOFError, ValueError, KeyError, IndexError, OverflowError,
    NotImplementedError, RuntimeError, struct.error, msgspec.MsgspecError,
)  # fmt: skip
"""Errors that `zipfile` raises for files that are not archives."""


class Writer:
    """Adds entries to an archive."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._digests: dict[str, str] = {}

    def add(self, name: str, data: bytes) -> None:
        """Add an entry with this content."""
        self._digests[name] = hashlib.sha256(data).hexdigest()
        self._archive.writestr(_entry(name), data)

    def add_file(self, name: str, file: Path) -> None:
        """Add an entry with the content of a file."""
        with file.open("rb") as content:
            self._digests[name] = hashlib.file_digest(content, "sha256").hexdigest()
            content.seek(0)
            with self._archive.open(_entry(name), "w", force_zip64=True) as entry:
                while piece := content.read(1 << 22):
                    entry.write(piece)

    def seal(self) -> None:
        """Add the digests of all entries; nothing may follow."""
        self._archive.writestr(_entry(SEAL), msgspec.json.encode(self._digests))


@contextmanager
def writer(file: BinaryIO) -> Iterator[Writer]:
    """An archive in an empty file, complete when the block ends."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        made = Writer(archive)
        yield made
        made.seal()


class Container:
    """An archive to read. Raises `GolowError`, in one sentence, for a file that is none, is damaged
    or has what no artifact has."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.is_file():
            raise GolowError(f"there is no file {file}")
        try:
            with zipfile.ZipFile(file) as archive:
                self._entries = self._listed(archive)
                self._digests = self._sealed(archive)
        except _BROKEN as error:
            raise self._broken(str(error) or type(error).__name__) from error

    def __contains__(self, name: str) -> bool:
        return name in self._digests

    @property
    def digest(self) -> str:
        """The name of its content."""
        return hashlib.sha256(msgspec.json.encode(self._digests)).hexdigest()[:32]

    @property
    def names(self) -> Mapping[str, str]:
        """All entries but the seal, each with its digest."""
        return self._digests

    def read(self, name: str) -> bytes:
        """The content of an entry."""
        if name not in self._digests:
            raise self._broken(f"there is no {name} in it")
        if self._entries[name].file_size > _MOST_SMALL:
            raise self._broken(f"{name} is too large")
        try:
            with zipfile.ZipFile(self.file) as archive:
                data = archive.read(name)
        except _BROKEN as error:
            raise self._broken(f"{name}: {error}") from error
        self._require_whole(name, data)
        return data

    def mapped(self, name: str) -> memoryview:
        """The content of an entry where it is in the file, read when it is used; its digest is
        verified first."""
        if name not in self._digests:
            raise self._broken(f"there is no {name} in it")
        entry = self._entries[name]
        try:
            with self.file.open("rb") as content:
                content.seek(entry.header_offset)
                lengths = _LOCAL_HEADER.unpack(content.read(_LOCAL_HEADER.size))
                whole = memoryview(mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ))
        except _BROKEN as error:
            raise self._broken(f"{name}: {error}") from error
        start = entry.header_offset + _LOCAL_HEADER.size + sum(lengths)
        found = whole[start : start + entry.file_size]
        self._require_whole(name, found)
        return found

    def _listed(self, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
        found: dict[str, zipfile.ZipInfo] = {}
        for entry in archive.infolist():
            name = entry.filename
            if not _NAME.fullmatch(name) or name in found:
                raise ValueError(f"an entry is called {name!r}")
            if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
                raise ValueError(f"{name} is compressed")
            found[name] = entry
        if sum(entry.file_size for entry in found.values()) > self.file.stat().st_size:
            raise ValueError("its entries are larger than the file")
        return found

    def _sealed(self, archive: zipfile.ZipFile) -> dict[str, str]:
        if self._entries[SEAL].file_size > _MOST_SMALL:
            raise ValueError(f"{SEAL} is too large")
        digests = msgspec.json.decode(archive.read(SEAL), type=dict[str, str])
        if digests.keys() != self._entries.keys() - {SEAL}:
            raise ValueError(f"{SEAL} is of other entries")
        return digests

    def _require_whole(self, name: str, data: bytes | memoryview) -> None:
        if hashlib.sha256(data).hexdigest() != self._digests[name]:
            raise self._broken(f"{name} is not as it was written")

    def _broken(self, what: str) -> GolowError:
        return GolowError(
            f"{self.file} is not a complete golow artifact: {what}",
            "write it with golow build or f.save, or copy it again.",
        )


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry of a fixed date, so that equal content makes equal files."""
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
