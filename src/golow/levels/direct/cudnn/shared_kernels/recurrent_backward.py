"""Launches the gradients of a layer of a recurrent network: how its blocks share the units.
recurrent_backward.cu has the mathematics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import ceiling, integers
from golow.levels.direct.cudnn.shared_kernels.recurrent import (
    CELLS,
    MOST_ITEMS,
    SHARED_BYTES,
    SHARED_CODE,
    WORDS,
    Layer,
)

FILE = FOLDER / "recurrent_backward.cu"
TILE, WARPS = 8, 8  # units of a product, and warps: a thread may have 255 registers then
# Registers of a thread for weights, and with those for the words that it waits for: for each chunk
# 6 as they come, and 2 for each half of 16 rows.
MOST_REGISTERS, REGISTERS_AT_ALL, MOST_WAITED = 144, 176, 16
FEW_ROWS = 8
MOST_TILES = 4


class Columns(NamedTuple):
    """Share of each block: tiles of 8 units, and chunks of the depth for each of its warps."""

    tiles: int
    chunks: int


def unit_words(layer: Layer) -> int:
    """Words of 4 bytes of a unit's gates in the line of a row."""
    return ceiling(layer.gates, layer.per_word)


def width(layer: Layer) -> int:
    """Words of a row's line, with those that only fill up the last chunk."""
    return ceiling(layer.units * unit_words(layer), WORDS) * WORDS


def words(layer: Layer) -> int:
    """Words of 8 bytes through which blocks exchange gradients."""
    return layer.sides * 2 * layer.rows * width(layer)


def columns(layer: Layer, multiprocessors: int) -> Columns | None:
    """Return how the units are shared so that all blocks run at once, each on a
    separate multiprocessor; None if they have too many weights for its registers."""
    chunks = ceiling(width(layer) // WORDS, WARPS)
    for tiles in range(1, MOST_TILES + 1):
        found = Columns(tiles, chunks)
        if layer.sides * _blocks(layer, found) > multiprocessors:
            continue
        held = 2 * tiles * chunks <= MOST_REGISTERS
        fits = _items(layer, found) <= MOST_ITEMS and _shared(layer, found) <= SHARED_BYTES
        return found if held and fits else None
    return None


def recurrent_backward(layer: Layer, found: Columns, number: int) -> Kernel:
    """Pointers: the gradient of y, then as the forward kernel with trains leaves them the gates,
    what it kept and y, the hidden weight and first cell that it read, the last cell's gradient or 0
    -> gradients of both parts of the gates [lines, sides, gates, units], one where the cell has no
    gate apart, of the first state and of the first cell [sides, rows, units] or 0; and as many
    words of 8 bytes as `words` states, at a multiple of 16, in which nothing has one of the numbers
    from ``number`` to that plus the steps. All but gates and what was kept are of the layer's
    dtype."""
    numbers = (found.tiles, WARPS, found.chunks, _waited(layer, found), _items(layer, found))
    types, many = f"{C_TYPES[layer.dtype]}, {CELLS[layer.kind]}", layer.rows > FEW_ROWS
    shape = f"{', '.join(map(str, numbers))}, {str(many).lower()}"
    expression = f"recurrent_backward<{types}, {shape}>"
    sizes = (layer.steps, layer.rows, layer.units, width(layer), layer.lead)
    grid, block = (_blocks(layer, found), layer.sides, 1), (32 * WARPS, 1, 1)
    scalars = (*integers(*sizes), np.uint32(number))
    shared = _shared(layer, found)
    return Kernel(FILE, expression, grid, block, scalars, shared, SHARED_CODE)


def _blocks(layer: Layer, found: Columns) -> int:
    return ceiling(layer.units, TILE * found.tiles)


def _waited(layer: Layer, found: Columns) -> int:
    """Chunks that a thread waits for at a time, as many each time as they fit."""
    left = REGISTERS_AT_ALL - 2 * found.tiles * found.chunks
    most = max(1, min(left // (10 if layer.rows > FEW_ROWS else 8), MOST_WAITED))
    return ceiling(found.chunks, ceiling(found.chunks, most))


def _items(layer: Layer, found: Columns) -> int:
    """Gradients that a thread computes in a step."""
    return ceiling(layer.rows * TILE * found.tiles, 32 * WARPS)


def _shared(layer: Layer, found: Columns) -> int:
    """Bytes for the sums of all warps, for two steps."""
    return 2 * 4 * WARPS * layer.rows * TILE * found.tiles
