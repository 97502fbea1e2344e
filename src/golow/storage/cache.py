"""The cache: a folder that only its user can write, and entries that are read as they were written.

Programs in the cache are executed, so no other user may write there. What is damaged by accident (a
full disk, a broken one, a file that was edited) is noticed by its SHA-256, and made again. An entry
is a sealed file, which begins with the digest of the rest, or a sealed folder, which has the
digests of its files beside them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from golow.records.errors import GolowError
from golow.storage.files import CACHE_HINT, building, write_whole, writing
from golow.storage.ownership import ROOT, Exposed, exposed, exposed_within, make_own_folder
from golow.storage.shell_words import shell_word

SEAL = "seal.json"  # in a sealed folder
DEPTH = 2  # of what is looked at in the cache: a level's folder, and its entries
DIGEST_LINE = len(f"sha256 {hashlib.sha256().hexdigest()}\n")


def default_cache() -> Path:
    """golow's cache: ``$GOLOW_CACHE``, or its folder in the user's cache."""
    if given := os.environ.get("GOLOW_CACHE"):
        return Path(given)
    from platformdirs import user_cache_path  # here, since workers are given their folder

    return user_cache_path("golow")


def open_cache(given: str | Path | None = None) -> Path:
    """The given folder or golow's own, made if it is missing. Raises `GolowError` if it cannot be
    made, or if others can write it, a folder above it or one of its folders."""
    cache = Path(given or default_cache())
    with writing(f"the cache {cache}", CACHE_HINT):
        make_own_folder(cache, 0o700)
        found = exposed(cache, owners=(ROOT,)) or exposed_within(cache, DEPTH, owners=(ROOT,))
    if found is not None:
        raise _not_own(cache, found)
    return cache


@contextmanager
def cache_errors(given: str | Path | None = None) -> Iterator[None]:
    """An error of the system at a path in the cache becomes a `GolowError` that names another
    folder: the cache may be read-only, or full."""
    try:
        yield
    except OSError as error:
        cache = Path(given or default_cache())
        place = Path(str(error.filename or "")).absolute()
        if not place.is_relative_to(cache.absolute()):
            raise
        wrong = f"the cache {cache} cannot be written: {error.strerror}"
        raise GolowError(wrong, CACHE_HINT) from error


def _not_own(cache: Path, found: Exposed) -> GolowError:
    named = cache.absolute()
    other = "name another folder: GOLOW_CACHE=/my/folder golow ..."
    if found.path == named:
        wrong = f"{found.said(f'the cache {cache}')}, and programs in it are executed"
    else:
        wrong = f"{found.said()}, and programs in the cache {cache} are executed"
    if found.command:
        return GolowError(wrong, f"run: {found.command}, or {other}")
    if named in found.path.parents:
        return GolowError(wrong, f"run: rm -r {shell_word(found.path)}, or {other}")
    return GolowError(wrong, other)


# ---------------------------------------------------------------- sealed files


def write_sealed(path: Path, data: bytes) -> None:
    """Write the data, after a line with its digest; raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f"sha256 {hashlib.sha256(data).hexdigest()}\n".encode() + data)


def read_sealed(path: Path, notes: list[str]) -> bytes | None:
    """The data that was written; None if there is no such file, or if it is not as it was written,
    which is added to the notes."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    data = content[DIGEST_LINE:]
    if content[:DIGEST_LINE] == f"sha256 {hashlib.sha256(data).hexdigest()}\n".encode():
        return data
    _note(path.name, path.parent, notes)
    return None


# ---------------------------------------------------------------- sealed folders


@contextmanager
def building_sealed(folder: Path, prefix: str) -> Iterator[Path]:
    """An empty folder to fill, which is sealed and becomes ``folder`` when the block ends without
    an error; see `golow.storage.files.building`."""
    with building(folder, prefix, lambda: is_sealed(folder)) as draft:
        yield draft
        seal(draft)


def seal(folder: Path) -> None:
    """Write the digests of the folder's files beside them; raises `OSError`."""
    names = (str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    digests = {name: _digest(folder / name) for name in sorted(names) if name != SEAL}
    write_sealed(folder / SEAL, msgspec.json.encode(digests))


def is_sealed(folder: Path) -> bool:
    """True if all files of the sealed folder are as they were; there may be more."""
    return _damage(folder) == ""


def discard_damaged(folder: Path, notes: list[str]) -> None:
    """Remove a sealed folder with a file that is not as it was, which is added to the notes. A
    folder without a seal stays: it may be in the making."""
    if damaged := _damage(folder):
        _note(damaged, folder, notes)
        shutil.rmtree(folder, ignore_errors=True)


def _damage(folder: Path) -> str | None:
    """Name of a file that is not as it was; empty if there is none, None without a seal."""
    if not (folder / SEAL).exists():
        return None
    data = read_sealed(folder / SEAL, [])
    if data is None:
        return SEAL
    for name, digest in msgspec.json.decode(data, type=dict[str, str]).items():
        try:
            if _digest(folder / name) != digest:
                return name
        except OSError:
            return name
    return ""


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _note(name: str, folder: Path, notes: list[str]) -> None:
    notes.append(
        f"{name} in the cache was corrupt or from an earlier golow; it is built again ({folder})"
    )
