"""Cross-entropy of rows of scores and its gradient, in float32 for any precision. Scores and their
gradient may have gaps between their rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, pitch_in, with_pitch
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import require_floating, require_positive
from golow.levels.direct.cudnn.shared_kernels.rows import ROWS, threads_for
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.cudnn.steps.long_rows import pitch_for, rows_with_pitch
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import not_floating
from golow.lower.ir.graph import Ref
from golow.lower.operators.cross_entropy import CrossEntropy, CrossEntropyBackward
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.reduce import Reduce

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
ONE_BLOCK = 1024  # threads of a kernel that runs in one block
FLOAT = Layout("float32")


def cross_entropy(build: Builder, arguments: CrossEntropy) -> None:
    """Two kernels: the sums of each row's exponentials, and the sum of the rows' losses."""
    (x, pitch), target = _scores(build, arguments.x), build.values.tensor(arguments.target)
    rows, columns = x.shape
    name = build.current.name
    loss, total = (build.memory.new(f"{name}.{i}", (), FLOAT) for i in (0, 1))
    largest, logarithm = (build.memory.new(f"{name}.{i}", (rows,), FLOAT) for i in (2, 3))
    build.steps.kernel(rows_kernel(x.dtype, rows, columns, pitch), [x], [largest, logarithm])
    mean = arguments.reduction == "mean"
    kernel = loss_kernel(x.dtype, rows, columns, pitch, mean, arguments.ignored)
    build.steps.kernel(kernel, [x, target, largest, logarithm], [loss, total])
    for index, result in enumerate((loss, total, largest, logarithm)):
        build.values.define(index, result)


def cross_entropy_backward(build: Builder, arguments: CrossEntropyBackward) -> None:
    """One kernel, in the type of activations; it writes over the scores if nothing else reads
    them."""
    (x, pitch), target = _scores(build, arguments.x), build.values.tensor(arguments.target)
    rows, columns = x.shape
    dtype = build.types.computed
    pitch_dx = pitch_for(build, dtype, MatrixProduct, Reduce)
    fits = x.layout == with_pitch(dtype, x.shape, pitch_dx)
    in_place = fits and build.values.dies(arguments.x)
    result = x if in_place else rows_with_pitch(build, dtype, pitch_dx)
    types, mean = (x.dtype, dtype), arguments.reduction == "mean"
    kernel = backward_kernel(types, rows, columns, (pitch, pitch_dx), mean, arguments.ignored)
    largest, logarithm, total = (
        build.values.tensor(item)
        for item in (arguments.largest, arguments.logarithm, arguments.total_weight)
    )
    gradient = build.values.wanted(arguments.gradient, FLOAT)
    build.steps.kernel(kernel, [gradient, x, target, largest, logarithm, total], [result])
    build.values.define(0, result)


def _scores(build: Builder, reference: Ref) -> tuple[Tensor, int]:
    """The rows, with gaps if they have any, and the elements from one to the next."""
    x = build.values.view(reference)
    pitch = pitch_in(x.layout, x.shape) if is_aligned(x) else None
    if pitch is None:
        x = build.values.rows(reference)
        pitch = x.shape[-1]
    return x, pitch


def _refuse(arguments: CrossEntropy | CrossEntropyBackward, question: Question) -> str:
    if (dtype := question.value(arguments.target).dtype) != "int64":
        return f"{question.node.op} with targets of {dtype}"
    return not_floating(question, arguments.x)


# ---------------------------------------------------------------- kernels


def rows_kernel(source: str, rows: int, columns: int, pitch: int) -> Kernel:
    """Pointers: x, rows of ``source`` with ``pitch`` elements from one to the next -> the largest
    of each row and the logarithm of the sum of exp(x - largest), float32 [rows]."""
    _require(rows, columns, pitch, source)
    threads = threads_for(columns)
    name = f"cross_entropy_rows<{C_TYPES[source]}, {threads}, {_vector((source,), pitch)}>"
    scalars = (np.int32(columns), np.int64(pitch))
    return Kernel(FILE, name, (rows, 1, 1), (threads, 1, 1), scalars, code=ROWS)


def loss_kernel(
    source: str, rows: int, columns: int, pitch: int, mean: bool, ignored: int = -100
) -> Kernel:
    """Pointers: x, target [rows] (int64), the results of `rows_kernel` -> loss, weight (float32
    scalars). weight: the number of targets that are not ``ignored``."""
    _require(rows, columns, pitch, source)
    name = f"cross_entropy<{C_TYPES[source]}, {ONE_BLOCK}>"
    scalars = (
        *(np.int32(rows), np.int32(columns), np.int64(pitch)),
        *(np.int32(mean), np.int64(ignored)),
    )
    return Kernel(FILE, name, (1, 1, 1), (ONE_BLOCK, 1, 1), scalars, code=ROWS)


def backward_kernel(
    dtypes: tuple[str, str],
    rows: int,
    columns: int,
    pitches: tuple[int, int],
    mean: bool,
    ignored: int = -100,
) -> Kernel:
    """Pointers: gradient (float32 scalar), x, target [rows] (int64), the results of `rows_kernel`,
    weight (float32 scalar) -> dx. dtypes, pitches: of x and dx, which may be the same memory if
    both are equal."""
    _require(rows, columns, min(pitches), *dtypes)
    threads = threads_for(columns)
    types = ", ".join(C_TYPES[dtype] for dtype in dtypes)
    name = f"cross_entropy_backward<{types}, {threads}, {_vector(dtypes, *pitches)}>"
    scalars = (
        *(np.int32(columns), np.int64(pitches[0]), np.int64(pitches[1])),
        *(np.int32(mean), np.int64(ignored)),
    )
    return Kernel(FILE, name, (rows, 1, 1), (threads, 1, 1), scalars, code=ROWS)


def _vector(dtypes: tuple[str, ...], *pitches: int) -> int:
    """Columns that a thread takes at once: 16 bytes of the narrowest type, if rows begin there."""
    return math.gcd(16 // min(ITEM_BYTES[dtype] for dtype in dtypes), *pitches)


def _require(rows: int, columns: int, pitch: int, *dtypes: str) -> None:
    for dtype in dtypes:
        require_floating(dtype=dtype)
    require_positive(rows=rows, columns=columns)
    if pitch < columns:
        raise ValueError(f"rows of {columns} elements every {pitch} elements")


IMPLEMENTATIONS = (
    Implementation(CrossEntropy, cross_entropy, _refuse),
    Implementation(CrossEntropyBackward, cross_entropy_backward, _refuse),
)
