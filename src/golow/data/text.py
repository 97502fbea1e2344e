"""A text as package data, for training language models without a download.

Source: the beginning of William Shakespeare's plays (died 1616, in the public domain), as the file
``data/tinyshakespeare/input.txt`` of karpathy/char-rnn has them: its first 239,976 bytes, to the
end of a paragraph, unchanged.

A token is a byte, so the vocabulary has 256 tokens and needs no file of its own. The first nine
tenths are for training. A sample is a run of ``sequence`` bytes, and the targets are the same run
one byte later; runs do not overlap.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from golow.records.errors import GolowError

FILE = Path(__file__).with_name("shakespeare.txt")
TRAINING = 215_978
SEQUENCE = 128
CLASSES = tuple(repr(bytes([byte]))[2:-1] for byte in range(256))
SOURCE = "embedded, William Shakespeare's plays (public domain), a token a byte"

_SIZE = 239_976
_SHA256 = "2404c36aa9d58494028e8a534911eed76544e084f791d6037fe3b36f8faebc41"

Tokens = NDArray[np.int64]


def load() -> bytes:
    """The text. Raises `GolowError` if it is missing, or not the one golow was released with."""
    try:
        text = FILE.read_bytes()
    except OSError as error:
        raise _damaged(str(error.strerror)) from error
    digest = hashlib.sha256(text).hexdigest()
    if digest != _SHA256:
        raise _damaged(f"its sha256 is {digest[:12]}, not {_SHA256[:12]}")
    return text


def samples(part: str, sequence: int) -> tuple[Tokens, Tokens]:
    """Tokens and targets, int64 [N, sequence], of the part ``train`` or ``test``.

    Raises `GolowError` if the part has no run of that length.
    """
    text = load()
    return windows(text[:TRAINING] if part == "train" else text[TRAINING:], sequence)


def count(part: str, sequence: int) -> int:
    """How many samples the part has."""
    return ((TRAINING if part == "train" else _SIZE - TRAINING) - 1) // sequence


def windows(text: bytes, sequence: int) -> tuple[Tokens, Tokens]:
    """The runs of that length, and the same one byte later; the rest of the text is left out."""
    rows = (len(text) - 1) // sequence if sequence > 0 else 0
    if rows < 1:
        raise GolowError(
            f"a text of {len(text):,} bytes has no sequences of {sequence}",
            f"use --sequence {SEQUENCE}.",
        )
    tokens = np.frombuffer(text, np.uint8).astype(np.int64)
    used = rows * sequence
    return tokens[:used].reshape(rows, sequence), tokens[1 : used + 1].reshape(rows, sequence)


def _damaged(reason: str) -> GolowError:
    return GolowError(
        f"the text in {FILE} is damaged: {reason}",
        hint="pip install --force-reinstall --no-deps golow",
    )
