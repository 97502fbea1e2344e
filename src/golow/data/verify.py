"""Checksums of the publishers' files and of the files prepared from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from golow.data.catalog import Dataset, PublishedFile
from golow.data.part import reading
from golow.data.places import prepared_files
from golow.data.token_file import open_prepared
from golow.records.errors import GolowError
from golow.storage.files import is_file


class Finding(NamedTuple):
    """The result for a file; wrong is empty if it is correct."""

    file: Path
    wrong: str


def verify_published(dataset: Dataset, folder: Path) -> Iterator[Finding]:
    """Compare the publisher's files in the folder with their published size and MD5 sum.

    VOC has checksums of its archives only, which `fetch` verifies.
    """
    for file in dataset.files:
        if is_file(folder / file.name):
            yield Finding(folder / file.name, _difference(folder / file.name, file))


def verify_prepared(cache: Path, prefix: str = "") -> Iterator[Finding]:
    """Compare prepared files whose names begin so with the checksum that they contain."""
    for file in prepared_files(cache):
        if not file.name.startswith(prefix):
            continue
        try:
            open_prepared(file, verify=True)
            yield Finding(file, "")
        except GolowError as error:
            yield Finding(file, error.message.removeprefix(f"{file} "))


def provenance(dataset: Dataset, files: Iterable[Path]) -> str:
    """Describe a part's source: the publisher's files, to the last bit, or others."""
    known = {file.name: file for file in dataset.files}
    published = [(file, known[file.name]) for file in files if file.name in known]
    if not published:
        return ""
    if any(_difference(file, expected) for file, expected in published):
        return "other bytes than the publisher's"
    return "the publisher's bytes"


def _difference(file: Path, expected: PublishedFile) -> str:
    size = file.stat().st_size
    if size != expected.size:
        return f"{size:,} bytes instead of the publisher's {expected.size:,}"
    md5 = md5_of(file)
    return "" if md5 == expected.md5 else f"md5 {md5} instead of the publisher's {expected.md5}"


def md5_of(file: Path) -> str:
    """The checksum that publishers give; it detects corruption, not malice."""
    with reading(file) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
