"""Launches a layer of a recurrent network: how its blocks share the units. recurrent.cu has
the mathematics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import CODE, ceiling, integers
from golow.levels.direct.cudnn.shared_kernels.few_pixels import TENSOR_CORES
from golow.lower.operators.recurrence import GATES, Cell

FILE = FOLDER / "recurrent.cu"
EXCHANGE = (FOLDER / "exchange.cuh").read_text()  # after the tensor cores
SHARED_CODE = CODE + TENSOR_CORES + EXCHANGE + (FOLDER / "recurrent.cuh").read_text()
CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "TANH", "rnn_relu": "RELU"}

TILE, WORDS, COLUMNS = 16, 8, 8  # rows, words of depth and columns of one product
# Chunks of the depth that a block of few warps has, and more warps beyond it. With the first, a
# thread may have 255 registers, with the second 128.
FEW_CHUNKS, WARPS = 64, (8, 16)
# Registers of a thread for weights. The others are for the words that it waits for, and for sums.
MOST_REGISTERS = {8: 144, 16: 64}
MOST_WAITED = {8: 8, 16: 4}  # chunks at a time, each two words of two registers
MOST_TILES, MOST_ITEMS = 4, 4
ALIGNMENT = 64  # of y, in bytes
SHARED_BYTES = 200 << 10  # of a multiprocessor of an H100, with room for what the runtime needs


class Layer(NamedTuple):
    """A layer over all its steps. rows: of a batch; units: of its state. batch_major: whether a
    row's steps are neighbours, not a step's rows. trains: whether it keeps what its gradients
    need; no row's steps are neighbours then."""

    kind: Cell
    sides: int
    steps: int
    rows: int
    units: int
    dtype: str
    batch_major: bool
    trains: bool = False

    @property
    def gates(self) -> int:
        """How many numbers a unit has in each of both sums of its gates."""
        return GATES[self.kind]

    @property
    def per_word(self) -> int:
        """Units in a word of 4 bytes."""
        return 4 // ITEM_BYTES[self.dtype]

    @property
    def width(self) -> int:
        """Words of a row's state, with those that only fill up the last chunk."""
        return ceiling(self.units, self.per_word * WORDS) * WORDS

    @property
    def step_elements(self) -> int:
        """Elements of y in a time step."""
        return self.rows * self.sides * self.units

    @property
    def lead(self) -> int:
        """Elements of y's memory before y, which begins at a multiple of `ALIGNMENT`: with trains
        there is room for a step before it, and for one after it."""
        each = ALIGNMENT // ITEM_BYTES[self.dtype]
        return ceiling(self.step_elements, each) * each if self.trains else 0

    @property
    def y_elements(self) -> int:
        """Elements of y's memory."""
        return self.lead + (self.steps + self.trains) * self.step_elements

    @property
    def words(self) -> int:
        """Words of 8 bytes through which blocks exchange states."""
        return self.sides * 2 * self.rows * self.width


class Slices(NamedTuple):
    """Share of each block: units, in tiles of 16 rows; warps, with chunks of the depth."""

    units: int
    tiles: int
    warps: int
    chunks: int


def slices(layer: Layer, multiprocessors: int) -> Slices | None:
    """Return how the units are shared so that all blocks run at once, each on a
    separate multiprocessor; None if they have too many weights for its registers."""
    chunks = layer.width // WORDS
    warps = WARPS[chunks > FEW_CHUNKS]
    each = ceiling(chunks, warps)
    for tiles in range(1, MOST_TILES + 1):
        units = TILE * tiles // layer.gates // layer.per_word * layer.per_word
        found = Slices(units, tiles, warps, each)
        if units == 0 or layer.sides * ceiling(layer.units, units) > multiprocessors:
            continue
        held = 4 * tiles * each <= MOST_REGISTERS[warps]
        fits = _items(layer, found) <= MOST_ITEMS and _shared(layer, found) <= SHARED_BYTES
        return found if held and fits else None
    return None


def recurrent(layer: Layer, found: Slices, number: int) -> Kernel:
    """Pointers: the input's part of the gates, float32 [lines, sides, gates, units], the hidden
    weight [sides, gates, units, units], both biases, float32 [sides, gates, units] or 0, the first
    state and cell [sides, rows, units] -> y's memory, of which y is [lines, sides, units] after its
    lead; with trains the gates, float32, which may be the memory of the input's part, and of cells
    with gates float32 of y's shape; the last state and cell or 0; and `Layer.words` words of 8
    bytes at a multiple of 16, in which nothing has one of the numbers from ``number`` to that plus
    the steps. All others are of the layer's dtype. lines: time steps of rows or rows of time steps.

    With trains the first states are written before y's first step or, backwards, after its last.
    Without it no kernel that may still run when this one begins writes the weight."""
    units, tiles, warps, chunks = found
    group, items = min(chunks, MOST_WAITED[warps]), _items(layer, found)
    numbers = (units, tiles, warps, chunks, group, items)
    types = f"{C_TYPES[layer.dtype]}, {CELLS[layer.kind]}"
    trains = str(layer.trains).lower()
    expression = f"recurrent<{types}, {', '.join(map(str, numbers))}, {trains}>"
    step_lines, row_lines = (1, layer.steps) if layer.batch_major else (layer.rows, 1)
    sizes = (layer.steps, layer.rows, layer.units, layer.width, step_lines, row_lines, layer.lead)
    grid, block = (ceiling(layer.units, units), layer.sides, 1), (32 * warps, 1, 1)
    scalars = (*integers(*sizes), np.uint32(number))
    shared = _shared(layer, found)
    return Kernel(FILE, expression, grid, block, scalars, shared, SHARED_CODE)


def _items(layer: Layer, found: Slices) -> int:
    """States that a thread computes in a step."""
    return ceiling(layer.rows * found.units, 32 * found.warps)


def _shared(layer: Layer, found: Slices) -> int:
    """Bytes for the sums of all warps, for two steps."""
    columns = ceiling(layer.rows, COLUMNS) * COLUMNS
    return 2 * 4 * found.warps * TILE * found.tiles * columns
