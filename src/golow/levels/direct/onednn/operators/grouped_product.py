"""Products of groups of rows: one product of matrices for each group that has any, by oneDNN."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_char, c_float, c_int64, c_void_p
from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.library import call
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.lower.operators.grouped_product import GroupedProduct, GroupedSums


def grouped_product(build: Builder, arguments: GroupedProduct) -> None:
    """Each group's rows by its own matrix."""
    turned = arguments.turned

    def run(x: Any, weight: Any, ends: Any, y: Any) -> None:
        product(x, weight, ends, y, turned)

    of_arrays(build, run, arguments.x, arguments.weight, arguments.ends)


def grouped_sums(build: Builder, arguments: GroupedSums) -> None:
    """The sums over each group's rows."""
    of_arrays(build, sums, arguments.x, arguments.gradient, arguments.ends)


def product(x: Any, weight: Any, ends: Any, y: Any, turned: bool) -> None:
    """Write `GroupedProduct`'s meaning into y; all arrays are row-major."""
    last = 0
    for group, (first, last) in enumerate(_groups(ends, len(x))):
        if first < last:
            _multiply(x[first:last], weight[group], y[first:last], right_turned=turned)
    y[last:] = 0


def sums(x: Any, gradient: Any, ends: Any, y: Any) -> None:
    """Write `GroupedSums`' meaning into y; all arrays are row-major."""
    for group, (first, last) in enumerate(_groups(ends, len(x))):
        if first < last:
            _multiply(x[first:last], gradient[first:last], y[group], left_turned=True)
        else:
            y[group] = 0


def _groups(ends: Any, rows: int) -> Iterator[tuple[int, int]]:
    """The first row of each group, and the first after it."""
    first = 0
    for end in ends.tolist():
        last = min(max(end, first), rows)
        yield first, last
        first = last


def _multiply(
    left: Any, right: Any, result: Any, left_turned: bool = False, right_turned: bool = False
) -> None:
    """result = left @ right, of row-major float32 matrices, each of them turned if so said."""
    rows, columns = result.shape
    inner = left.shape[0] if left_turned else left.shape[1]
    call(
        "dnnl_sgemm",
        *(c_char(b"T" if turned else b"N") for turned in (left_turned, right_turned)),
        *map(c_int64, (rows, columns, inner)),
        c_float(1), *_matrix(left), *_matrix(right), c_float(0), *_matrix(result),
    )  # fmt: skip


def _matrix(array: Any) -> tuple[c_void_p, c_int64]:
    """Its address, and the elements from row to row."""
    return c_void_p(array.ctypes.data), c_int64(array.shape[1])


IMPLEMENTATIONS = (
    Implementation(GroupedProduct, grouped_product),
    Implementation(GroupedSums, grouped_sums),
)
