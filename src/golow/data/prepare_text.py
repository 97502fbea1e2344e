"""From the embedded text to prepared files of tokens."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from golow.data import text
from golow.data.image_file import ImageFacts
from golow.data.places import prepared_folder
from golow.data.token_file import open_tokens, write_tokens
from golow.records.errors import GolowError

_FORMAT = 1  # raise it when preparation gives other tokens for the same text


def prepare_text(sequence: int, cache: Path, parts: tuple[str, ...]) -> tuple[Path, ...]:
    """The prepared files of the parts, made if they do not exist yet."""
    return tuple(_prepared(part, sequence, cache) for part in parts)


def _prepared(part: str, sequence: int, cache: Path) -> Path:
    key = hashlib.sha256(json.dumps([_FORMAT, part, sequence, text.SOURCE]).encode()).hexdigest()
    file = prepared_folder(cache) / f"text-{part}-{sequence}-{key[:16]}.safetensors"
    try:
        open_tokens(file)
    except GolowError:
        tokens, labels = text.samples(part, sequence)
        facts = ImageFacts(
            dataset="text",
            part=part,
            classes=text.CLASSES,
            source=f"{text.SOURCE}; {part}, runs of {sequence}",
        )
        write_tokens(file, labels, tokens, facts)
    return file
