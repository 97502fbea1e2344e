"""A prepared part of a text: the form in which every worker reads tokens.

Like a prepared part of images (`golow.data.image_file`), it is a safetensors file with facts in its
metadata. Its tensors are ``labels`` and ``tokens``, both int64 [N, sequence]; a worker uses them as
they are.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from golow.data.image_file import ImageFacts, PreparedImages, open_images
from golow.records.errors import GolowError
from golow.storage.files import CACHE_HINT, write_whole, writing

Tokens = NDArray[np.int64]


class PreparedTokens(NamedTuple):
    """A prepared part: labels and tokens int64 [N, sequence]."""

    labels: Tokens
    tokens: Tokens
    facts: ImageFacts


def write_tokens(path: Path, labels: Tokens, tokens: Tokens, facts: ImageFacts) -> ImageFacts:
    """Write labels and tokens [N, sequence]; returns the facts with the checksum."""
    facts = msgspec.structs.replace(facts, checksum=_checksum(labels, tokens))
    metadata = {
        "dataset": facts.dataset,
        "part": facts.part,
        "classes": json.dumps(facts.classes),
        "checksum": facts.checksum,
        "source": facts.source,
    }
    tensors = {"labels": np.ascontiguousarray(labels), "tokens": np.ascontiguousarray(tokens)}
    with writing(path, CACHE_HINT):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, save(tensors, metadata))
    return facts


def open_tokens(path: Path, verify: bool = False) -> PreparedTokens:
    """The prepared part in a file; with verify the checksum is compared.

    Raises:
        GolowError: the file is missing, damaged, or was not written by `write_tokens`; a label or a
            token is not in the vocabulary; with verify, the checksum differs.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            labels, tokens = file.get_tensor("labels"), file.get_tensor("tokens")
            facts = _facts(file.metadata() or {})
        _require_sense(labels, tokens, len(facts.classes))
    except (SafetensorError, OSError, ValueError, msgspec.MsgspecError) as error:
        raise _refused(path, str(error)) from error
    if verify and _checksum(labels, tokens) != facts.checksum:
        found = _checksum(labels, tokens)
        raise _refused(path, f"its checksum is {found}, not {facts.checksum}")
    return PreparedTokens(labels, tokens, facts)


def open_prepared(path: Path, verify: bool = False) -> PreparedImages | PreparedTokens:
    """The prepared part in a file, of images or of tokens. Raises as the readers of both do."""
    return open_tokens(path, verify) if _has_tokens(path) else open_images(path, verify)


def _has_tokens(path: Path) -> bool:
    try:
        with safe_open(path, framework="numpy") as file:
            return "tokens" in file.keys()  # noqa: SIM118 - the file is not a dictionary
    except (SafetensorError, OSError):
        return False  # `open_images` states what is wrong with it


def _facts(metadata: dict[str, str]) -> ImageFacts:
    fields = {n: json.loads(text) if n == "classes" else text for n, text in metadata.items()}
    return msgspec.convert(fields, ImageFacts)


def _require_sense(labels: Tokens, tokens: Tokens, vocabulary: int) -> None:
    """Raise ValueError unless they are int64 [N, sequence] below the size of the vocabulary."""
    for name, found in (("labels", labels), ("tokens", tokens)):
        if found.dtype != np.int64 or found.ndim != 2 or not found.size:
            raise ValueError(f"its {name} are not int64 [N, sequence]")
        if not 0 <= found.min() <= found.max() < vocabulary:
            raise ValueError(f"its {name} are not all below {vocabulary}")
    if labels.shape != tokens.shape:
        raise ValueError("its labels and tokens have different shapes")


def _checksum(labels: Tokens, tokens: Tokens) -> str:
    return f"{zlib.crc32(tokens.tobytes(), zlib.crc32(labels.tobytes())):08x}"


def _refused(path: Path, reason: str) -> GolowError:
    return GolowError(
        f"{path} is not a prepared data set: {reason}",
        "delete it; golow prepares it again from the data set.",
    )
