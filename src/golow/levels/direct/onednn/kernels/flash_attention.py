"""Attention in one pass, without a matrix of scores in memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from golow.levels.direct.onednn.kernels import Kernel, parts

FOLDER = Path(__file__).parent
FORWARD, BACKWARD = (
    "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in ("panels.h", file))
    for file in ("flash_attention.cpp", "flash_attention_backward.cpp")
)
ROWS = 64  # of the query in a part: two threads share a head of more
WIDEST = 256  # elements of a head's row, as in panels.h


class Placed(NamedTuple):
    """Shape [B, H, L, E] and the steps of its axes, in elements; that of the last one is 1."""

    shape: Sequence[int]
    steps: Sequence[int]


class Scores(NamedTuple):
    """How scores are made. added: the steps of what is added to them by image, head, row and key; 0
    where it is the same for all, and 1 for rows that differ. causal: row i sees the first i + 1
    keys."""

    added: Sequence[int] | None
    causal: bool
    scale: float


def attention(
    placed: Sequence[Placed],
    scores: Scores,
    keeps: bool,
    cached: bool = False,
    own_positions: bool = False,
) -> Kernel:
    """Pointers: query [B, H, L, E], key [B, G, S, E], value [B, G, S, D][, added][, with cached:
    position] -> [B, H, L, D][, with keeps: the logarithm of each row's sum of exponentials, B H L
    in a row]. H is a multiple of G. placed: query, key, value, result. cached: row i sees the first
    position + i + 1 keys, and others are not read. own_positions: there are B of them."""
    images, heads, rows, inner = placed[0].shape
    _, groups, keys, width = placed[2].shape
    blocks = -(-rows // ROWS)
    numbers = (
        *parts(images * heads * blocks, images * heads * rows * keys),
        ROWS, blocks, heads, heads // groups, rows, keys, inner, width, int(scores.causal),
        bits(scores.scale), int(scores.added is not None), int(keeps), *_steps(placed),
        *(scores.added or NOTHING), int(cached), int(own_positions),
    )  # fmt: skip
    return Kernel(FORWARD, numbers)


def attention_backward(placed: Sequence[Placed], scores: Scores) -> Kernel:
    """Pointers: query, key, value, output, the logarithms, the output's gradient[, added] -> the
    gradients of query, key and value. placed: query, key, value, output, its gradient, results."""
    images, heads, rows, inner = placed[0].shape
    _, groups, keys, width = placed[2].shape
    numbers = (
        *parts(images * groups, images * heads * rows * keys),
        groups, heads // groups, rows, keys, inner, width, int(scores.causal),
        bits(scores.scale), int(scores.added is not None), *_steps(placed),
        *(scores.added or NOTHING),
    )  # fmt: skip
    return Kernel(BACKWARD, numbers)


NOTHING = (0, 0, 0, 0)


def _steps(placed: Sequence[Placed]) -> tuple[int, ...]:
    """The steps of images, heads and rows."""
    return tuple(step for item in placed for step in item.steps[:3])


def bits(number: float) -> int:
    """A float32 among the numbers of a kernel."""
    (bits,) = struct.unpack("i", struct.pack("f", number))
    return int(bits)
