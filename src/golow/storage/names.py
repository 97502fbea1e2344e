"""Names of files and folders that are made of other texts: of models, of levels, of records."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

LONGEST_NAME = 200  # bytes of a name of a file or folder; systems take 255
LONGEST_PART = 100  # bytes of the name of a model or level within another name
DIGEST_LENGTH = 12  # hexadecimal digits in a name that was shortened


def is_plain_name(text: str) -> bool:
    """True if a text from a record can be the name of a file or folder: of no other place, and not
    too long."""
    if text in ("", ".", "..") or not text.isprintable() or "\\" in text:
        return False
    return Path(text).name == text and len(text.encode()) <= LONGEST_NAME


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    """The name or, where it has more than that many bytes, its beginning and a digest of all of it,
    so that two long names stay two."""
    data = name.encode(errors="replace")
    if len(data) <= longest:
        return name
    digest = hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]
    return f"{data[: longest - DIGEST_LENGTH - 1].decode(errors='ignore')}-{digest}"


def file_name(name: str, longest: int = LONGEST_NAME) -> str:
    """The name with a dash for every character that some file system rejects, and not too long."""
    return shortened(re.sub(r"[^\w.+-]+", "-", name), longest)
