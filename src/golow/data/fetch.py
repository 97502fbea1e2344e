"""Downloads from the publishers, only when a user requests them.

pooch compares every file with its published MD5 sum and moves it to its name. An interrupted
transfer is kept (``NAME.part``), and the next attempt requests the rest.
"""

from __future__ import annotations

import logging
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any

from golow.data.catalog import Dataset, Download, located
from golow.data.prepare import Progress
from golow.data.verify import md5_of
from golow.records.errors import GolowError

_ATTEMPTS = 5  # per address, as long as each attempt receives something
_PATIENCE = 30.0  # seconds without a byte
_PIECE = 1 << 18


def fetch(
    dataset: Dataset, root: Path, progress: Progress = lambda what, done, total: None
) -> Path:
    """Download what is missing of a data set into a data root; returns its folder.

    Raises:
        GolowError: there is nothing to download for this data set; pooch is not installed; no
            address could be reached, or none has the published bytes; the archive cannot be
            unpacked; the disk is full.
    """
    if not dataset.downloads:
        raise GolowError(
            f"there is nothing to download for {dataset.name}", "it can be used as it is."
        )
    folder = root / dataset.folders[0]
    try:
        if complete(dataset, root):
            return located(dataset, root)
        _require_pooch()
        if dataset.downloads[0].archive and folder.exists():
            raise GolowError(
                f"{folder} exists already and differs from the published {dataset.name}",
                "move it away, or choose another folder with --data-root.",
            )
        for download in dataset.downloads:
            file = _download(download, root, progress)
            if download.archive:
                _unpack(file, dataset.folders[0], folder)
                file.unlink()
    except OSError as error:
        raise GolowError(
            f"{dataset.name} cannot be written to {root}: {error.strerror or error}",
            "free some space, or choose another folder with --data-root.",
        ) from error
    return folder


def complete(dataset: Dataset, root: Path) -> bool:
    """True if all of the publisher's files exist with the right sizes; for an archive with too
    many files to list, whether its folder exists."""
    try:
        folder = located(dataset, root)
    except GolowError:
        return False
    there = {file.name for file in dataset.files if _bytes_of(folder / file.name) == file.size}
    plain = {file.name.removesuffix(".gz") for file in dataset.files}
    return all(name in there or f"{name}.gz" in there for name in plain)


def _require_pooch() -> None:
    try:
        import pooch  # noqa: F401
    except ImportError as error:
        raise GolowError(
            "downloads need pooch, which is not installed", "pip install 'golow[fetch]'"
        ) from error


def _download(download: Download, root: Path, progress: Progress) -> Path:
    """The file with the published checksum, from the first address that has it."""
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    file = root / download.name
    failures = []
    for url in download.urls:
        try:
            pooch.retrieve(
                url,
                known_hash=f"md5:{download.md5}",
                fname=file.name,
                path=file.parent,
                downloader=_Resuming(download, progress),
            )
            return file
        except requests.HTTPError as error:
            failures.append(str(error))
        except requests.ConnectionError:
            failures.append(f"{url} cannot be reached")
        except (requests.RequestException, _Broken) as error:
            failures.append(f"{url}: {error}")
        except ValueError:
            failures.append(f"{url} sent {download.size:,} bytes whose md5 is not {download.md5}")
    raise _failure(download, file, failures)


def _failure(download: Download, file: Path, failures: list[str]) -> GolowError:
    if file.exists():
        failures.append(f"the existing file has md5 {md5_of(file)}")
    unreachable = all(failure.endswith("cannot be reached") for failure in failures)
    network = "; there seems to be no network connection" if unreachable else ""
    return GolowError(
        f"{file.name} could not be downloaded{network}: {'; '.join(failures)}",
        f"try again later, which continues where this stopped; or get {download.urls[0]} "
        f"({download.size:,} bytes, md5 {download.md5}) by other means, put it at {file} and run "
        "the same command again.",
    )


class _Broken(Exception):
    """A transfer that ended repeatedly before the file was complete."""


class _Resuming:
    """A downloader for pooch that resumes an interrupted transfer."""

    def __init__(self, download: Download, progress: Progress) -> None:
        self._download, self._progress = download, progress
        self._name = Path(download.name).name

    def __call__(self, url: str, output_file: str, _: Any) -> None:
        """Called by pooch, which verifies the checksum. Raises errors of requests, `_Broken`."""
        part, size = Path(output_file).with_name(f"{self._name}.part"), self._download.size
        for _ in range(_ATTEMPTS):
            before = _bytes_of(part)
            if before < size:
                self._go_on(url, part, before)
            if _bytes_of(part) == size:
                part.replace(output_file)
                return
            if _bytes_of(part) > size:
                part.unlink()
                raise _Broken(f"sent more than the published {size:,} bytes")
            if _bytes_of(part) == before:
                break
        raise _Broken(f"ended after {_bytes_of(part):,} of {size:,} bytes")

    def _go_on(self, url: str, part: Path, before: int) -> None:
        """Request the missing bytes and write them; the connection may break at any byte."""
        import requests
        from urllib3.exceptions import HTTPError

        # Without the first line, servers may compress the compressed file again.
        headers = {"Accept-Encoding": "identity"}
        if before:
            headers["Range"] = f"bytes={before}-"
        with requests.get(url, headers=headers, stream=True, timeout=_PATIENCE) as response:
            if before and response.status_code == requests.codes.requested_range_not_satisfiable:
                part.unlink()
                raise _Broken(f"has no more than {before:,} of {self._download.size:,} bytes")
            response.raise_for_status()
            goes_on = response.status_code == requests.codes.partial_content
            done = before if goes_on else 0
            self._require_size(done, response.headers.get("Content-Length", ""))
            try:
                with part.open("ab" if goes_on else "wb") as file:
                    for piece in response.raw.stream(_PIECE, decode_content=False):
                        file.write(piece)
                        done += len(piece)
                        self._progress(self._name, done, self._download.size)
                        if done > self._download.size:
                            return
            except (HTTPError, ConnectionError):
                return  # what was received is kept

    def _require_size(self, before: int, length: str) -> None:
        """Another size means another file: an error page or a newer edition."""
        if length.isdecimal() and before + int(length) != self._download.size:
            raise _Broken(
                f"offers {before + int(length):,} bytes, not the published {self._download.size:,}"
            )


def _bytes_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _unpack(archive: Path, inside: str, folder: Path) -> None:
    """Unpack a tar archive, and when it is complete move the folder of that name to its place."""
    if not hasattr(tarfile, "data_filter"):
        raise GolowError(
            "this Python cannot safely unpack archives",
            f"use Python 3.11.4 or newer, or unpack {archive} by hand.",
        )
    scratch = Path(tempfile.mkdtemp(dir=archive.parent, prefix=f".{archive.name}."))
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        folder.parent.mkdir(parents=True, exist_ok=True)
        (scratch / inside).replace(folder)
    except (tarfile.TarError, EOFError, zlib.error, FileNotFoundError) as error:
        raise GolowError(f"{archive} does not unpack to {inside}: {error}", "delete it.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
