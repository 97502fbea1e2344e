"""Files of models on Hugging Face's hub: those that are on this machine, and downloads.

`download` is the one function that uses a network. It compares every file with the checksum that
the hub gives for it; huggingface_hub itself looks at the sizes alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from golow.records.errors import GolowError

WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
ONLINE = "check the connection, and run the same command again."


def cached(name: str, file: str) -> Path | None:
    """The file of the hub's model in this machine's cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, file)
    return Path(found) if isinstance(found, str) else None


def download(name: str, patterns: Sequence[str]) -> Path:
    """The folder of the hub's model, with the files of these patterns, downloaded where they are
    missing.

    Raises:
        GolowError: the hub cannot be reached or has no such model; a transfer ended early; a file's
            bytes are not those of its checksum, and then it was removed.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(patterns)))
        arrived = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
        damaged = [file for file in arrived if not _kept(name, file)]
    except GolowError:
        raise
    except Exception as error:
        raise _explained(name, error) from error
    if damaged:
        files = " and ".join(file.name for file in damaged)
        raise GolowError(
            f"{name}: checksum mismatch after download: {files}",
            "the file was removed; run the same command again.",
        )
    return folder


def _kept(name: str, file: Path) -> bool:
    """True if the file is what the hub has; it is removed if not, or if the hub does not report
    it."""
    whole = False
    try:
        whole = _is_whole(name, file)
    finally:
        if not whole:
            file.resolve().unlink(missing_ok=True)
            file.unlink(missing_ok=True)
    return whole


def _is_whole(name: str, file: Path) -> bool:
    """True if the file has the hub's checksum: SHA-256 of large files, git's of the others."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    if file.is_symlink():  # to a file that the cache names by its checksum
        expected = file.readlink().name
    else:
        url = hf_hub_url(name, file.name, revision=file.parent.name)
        expected = get_hf_file_metadata(url).etag or ""
    with file.open("rb") as opened:
        if len(expected) == hashlib.sha256().digest_size * 2:
            return hashlib.file_digest(opened, "sha256").hexdigest() == expected
        if len(expected) == hashlib.sha1(usedforsecurity=False).digest_size * 2:
            return _git_digest(opened, file.stat().st_size) == expected
    raise GolowError(
        f"the hub gives no checksum for {file.name} of {name}",
        "golow keeps no download without one; get the files by other means: hf:./FOLDER.",
    )


def _git_digest(opened: BinaryIO, size: int) -> str:
    """The name that git gives to a file of these bytes."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    while piece := opened.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def _explained(name: str, error: Exception) -> GolowError:
    """An error of huggingface_hub as a fact and what to do about it."""
    # Where the hub is not reached, the first error is about the cache, and its cause states why.
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    status = getattr(getattr(cause, "response", None), "status_code", 0)
    first = str(cause).strip().partition("\n")[0]
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        hint = "HF_HUB_OFFLINE is set; unset it to download."
    elif status in (401, 403, 404):
        hint = "check the name; a private or gated model needs a login: hf auth login."
    elif isinstance(cause, ValueError):
        hint = "check the name: hf:NAME or hf:OWNER/NAME, as the hub has it."
    else:
        hint = ONLINE
    return GolowError(f"{name} cannot be downloaded: {type(cause).__name__}: {first}", hint)
