"""GEMMs as cuBLASLt computes them: a matrix product with its strides, batch and epilogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, pitch_in, pitch_of
from golow.levels.direct.cudnn.problems.products import Arithmetic
from golow.lower.operators.quantize import E4M3

BEST_ALIGNMENT = 256  # bytes; what cuMemAlloc returns and a workspace requires
RESULTS: dict[str, tuple[str, ...]] = {  # types of C and D, by that of the factors
    "float32": ("float32",),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "int8": ("int32",),
    E4M3: ("bfloat16", "float16", "float32"),
}
ARITHMETIC: dict[str, tuple[Arithmetic, ...]] = {
    "float32": ("ieee", "tf32"),
    "float16": ("half",),
    "bfloat16": ("half",),
    "int8": ("quarter",),
    E4M3: ("quarter",),
}


class Strides(NamedTuple):
    """Elements from one stored row of a matrix to the next, and from one matrix of a batch to the
    next; None where there is no gap between them."""

    row: int | None = None
    batch: int | None = None


CONTIGUOUS = Strides()


class Matrix(NamedTuple):
    """A row-major matrix as stored, with its batch; strides in elements."""

    rows: int
    columns: int
    row: int
    batch: int

    def extent(self, batch: int) -> int:
        """Elements from the first to the last of a batch of this size."""
        return (batch - 1) * self.batch + (self.rows - 1) * self.row + self.columns


@dataclass(frozen=True)
class Problem:
    """D = relu(factor op(A) op(B) + C + bias), for row-major matrices; a batch of them for
    batch > 1. gelu, in the place of relu: GELU by tanh.

    op(A) is [m, k] and op(B) [k, n]; A is stored [k, m] with transpose_a, B [n, k] with
    transpose_b. D and C are [m, n]. dtype: storage of A and B; result: storage of C, D and the
    bias, which is dtype or float32; of int8 it is int32, of e4m3 any float. arithmetic: "ieee" or
    "tf32" for float32, "half" for 16-bit floats, "quarter" for 8 bits; sums are int32 or float32.
    scaled: products of e4m3 are multiplied by a number for each column and one for each row of D,
    two vectors of float32 [n] and [m].

    residual: whether there is a C; D may be the same memory as C if their strides are equal. bias:
    a vector [n], the same for every row and batch. bias_gradient: also write a vector [m], the sums
    of op(A)'s rows; for dW = dY^T X it is the gradient of the bias. alignment: every address is a
    multiple of this many bytes. frozen: B is the same in every iteration; cold: and not in the
    GPU's cache. Order of the operands: A, B[, bias or its gradient][, C], D.

    Raises ValueError for a contradictory problem. A valid problem that the library does not support
    has no candidates.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    result: str = "float32"
    arithmetic: Arithmetic = "ieee"
    transpose_a: bool = False
    transpose_b: bool = False
    scaled: bool = False
    bias: bool = False
    residual: bool = False
    relu: bool = False
    gelu: bool = False
    bias_gradient: bool = False
    factor: float = 1.0
    batch: int = 1
    alignment: int = BEST_ALIGNMENT
    frozen: bool = False
    cold: bool = False
    a: Strides = CONTIGUOUS
    b: Strides = CONTIGUOUS
    c: Strides = CONTIGUOUS
    d: Strides = CONTIGUOUS

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise ValueError(f"matrix product {self.m} x {self.n} x {self.k}: {fault}")

    @property
    def matrices(self) -> dict[str, Matrix]:
        """A, B, C and D, by their lower-case letters."""
        m, n, k = self.m, self.n, self.k
        shape_a = (k, m) if self.transpose_a else (m, k)
        shape_b = (n, k) if self.transpose_b else (k, n)
        return {
            "a": _stored(*shape_a, self.a),
            "b": _stored(*shape_b, self.b),
            "c": _stored(m, n, self.c if self.residual else self.d),  # D stands in for C
            "d": _stored(m, n, self.d),
        }

    @property
    def operand_bytes(self) -> tuple[int, ...]:
        """Sizes of the operands in their order, including gaps."""
        read, written = ITEM_BYTES[self.dtype], ITEM_BYTES[self.result]
        a, b, c, d = (matrix.extent(self.batch) for matrix in self.matrices.values())
        bias = (self.m if self.bias_gradient else self.n,)
        others = bias * (self.bias or self.bias_gradient) + (c,) * self.residual + (d,)
        scales = (4 * self.n, 4 * self.m) * self.scaled
        return a * read, b * read, *scales, *(size * written for size in others)

    @property
    def flops(self) -> int:
        """Its arithmetic, two a multiplication with addition."""
        return 2 * self.batch * self.m * self.n * self.k

    def _faults(self) -> Iterator[str]:
        if min(self.m, self.n, self.k, self.batch) < 1:
            yield f"sizes and batch must be at least 1, the batch is {self.batch}"
        if self.dtype not in RESULTS:
            yield f"dtype {self.dtype!r} is not one of {', '.join(RESULTS)}"
        if self.result not in (results := RESULTS[self.dtype]):
            yield f"result {self.result!r} must be {' or '.join(results)}"
        if self.arithmetic not in (allowed := ARITHMETIC[self.dtype]):
            choice = " or ".join(allowed)
            yield f"arithmetic {self.arithmetic!r} must be {choice} for {self.dtype}"
        if self.arithmetic == "quarter":
            yield from self._faults_of_8_bits()
        elif self.scaled:
            yield f"products of {self.dtype} are not scaled"
        if self.bias_gradient and (self.bias or self.relu or self.gelu or self.batch > 1):
            yield "bias_gradient goes with neither bias nor relu nor gelu nor a batch"
        if self.relu and self.gelu:
            yield "it has one activation: relu or gelu"
        yield from self._stride_faults()
        least, most = ITEM_BYTES[self.result], BEST_ALIGNMENT
        if self.alignment.bit_count() != 1 or not least <= self.alignment <= most:
            yield f"alignment {self.alignment} must be a power of two from {least} to {most}"

    def _faults_of_8_bits(self) -> Iterator[str]:
        if self.transpose_a or not self.transpose_b or self.batch > 1:
            yield "8 bits are multiplied by rows of a single A and a single B"
        changed = self.scaled or self.bias or self.residual or self.relu or self.factor != 1
        if self.dtype == "int8" and changed:
            yield "sums of int8 are written as they are"
        if self.gelu or self.bias_gradient or (self.bias and self.result == "float32"):
            yield "it has neither gelu nor a gradient nor a bias of float32 with 8 bits"

    def _stride_faults(self) -> Iterator[str]:
        if self.c != CONTIGUOUS and not self.residual:
            yield "strides of C are given, but no residual"
        for name, matrix in self.matrices.items():
            if matrix.row < matrix.columns:
                yield (
                    f"{name.upper()}'s row stride {matrix.row} is less than its rows' "
                    f"{matrix.columns} elements"
                )
            # A batch may share an operand that is only read.
            least = matrix.columns if name == "d" and self.batch > 1 else 0
            if matrix.batch < least:
                yield f"{name.upper()}'s batch stride {matrix.batch} is less than {least}"


def _stored(rows: int, columns: int, strides: Strides) -> Matrix:
    row = columns if strides.row is None else strides.row
    return Matrix(rows, columns, row, rows * row if strides.batch is None else strides.batch)


def strides_of(layout: Layout, shape: Sequence[int], turned: bool) -> Strides | None:
    """The gaps of a matrix whose rows, or columns if it is turned, are stored as far from one
    another throughout; None for another one, and for gaps after which rows are not aligned."""
    size, steps = tuple(shape), layout.strides(shape)
    if turned:
        size, steps = ((*order[:-2], order[-1], order[-2]) for order in (size, steps))
    pitch = pitch_in(Layout(layout.dtype, "strided", steps=steps), size)
    if pitch is None or pitch == size[-1]:
        return None if pitch is None else CONTIGUOUS
    aligned = pitch == pitch_of(pitch, layout.dtype)
    return Strides(pitch, size[-2] * pitch) if aligned else None
