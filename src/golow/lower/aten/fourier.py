"""Discrete Fourier transforms as products with matrices of cosines and sines.

y[k] = sum over j of x[j] exp(-2 pi i j k / n). A complex number is a pair of real ones (see
`complex_numbers`), so that a transform of pairs is one product with a matrix [2 n, 2 m], whose
numbers depend on positions alone. Of a few hundred points, as in mixers of tokens (Lee-Thorp et al.
2021, arXiv:2105.03824; Rao et al. 2021, arXiv:2107.00645), that costs what a linear layer does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from golow.lower.ir.graph import Argument, Ref

if TYPE_CHECKING:
    from golow.lower.aten.complex_numbers import Pairs

MOST_POINTS = 2048
"""Points of a transform at most: of more, its matrix has over 67 MB in float32."""
Given = dict[str, Argument]


def of_real(pairs: Pairs, given: Given) -> Ref | None:
    """``_fft_r2c``: the last of the axes from real numbers, then the others."""
    *others, last = _axes(pairs, given)
    sizes = pairs.sizes(given["self"])
    if not _fit(sizes, (*others, last)):
        return None
    count = sizes[last] // 2 + 1 if given["onesided"] else sizes[last]
    x = _last(pairs, given["self"], last, len(sizes))
    x = pairs.call("aten.matmul.default", x, _matrix(pairs, sizes[last], count, "real"))
    x = _unflattened(pairs, x)
    x = _back(pairs, x, last, len(sizes))
    for axis in others:
        x = _along(pairs, x, axis, sizes[axis], -1)
    return _scaled(pairs, x, given, math.prod(sizes[axis] for axis in (*others, last)))


def of_complex(pairs: Pairs, given: Given) -> Ref | None:
    """``_fft_c2c``."""
    axes, sizes = _axes(pairs, given), pairs.sizes(given["self"])
    if not _fit(sizes, axes) or not isinstance(given["self"], Ref):
        return None
    x, sign = given["self"], -1 if given["forward"] else 1
    for axis in axes:
        x = _along(pairs, x, axis, sizes[axis], sign)
    return _scaled(pairs, x, given, math.prod(sizes[axis] for axis in axes))


def to_real(pairs: Pairs, given: Given) -> Ref | None:
    """``_fft_c2r``: the inverse, the last of the axes to real numbers after the others."""
    *others, last = _axes(pairs, given)
    sizes, points = pairs.sizes(given["self"]), given["last_dim_size"]
    if not isinstance(points, int) or not isinstance(given["self"], Ref):
        return None
    if not _fit(sizes, others) or points > MOST_POINTS or sizes[last] != points // 2 + 1:
        return None
    x = given["self"]
    for axis in others:
        x = _along(pairs, x, axis, sizes[axis], 1)
    x = _flattened(pairs, _moved(pairs, x, last, len(sizes)))
    x = pairs.call("aten.matmul.default", x, _matrix(pairs, sizes[last], points, "inverse"))
    x = _last(pairs, x, last, len(sizes))
    return _scaled(pairs, x, given, math.prod(sizes[axis] for axis in others) * points)


# ---------------------------------------------------------------- one axis


def _along(pairs: Pairs, x: Ref, axis: int, points: int, sign: int) -> Ref:
    """The transform of pairs along one axis of as many points. sign: of the exponent."""
    rank = len(pairs.shape_of(x)) - 1
    x = _flattened(pairs, _moved(pairs, x, axis, rank))
    kind = "forward" if sign < 0 else "backward"
    x = pairs.call("aten.matmul.default", x, _matrix(pairs, points, points, kind))
    return _back(pairs, _unflattened(pairs, x), axis, rank)


def _matrix(pairs: Pairs, rows: int, columns: int, kind: str) -> Ref:
    """The matrix whose product with rows of numbers is their transform.

    real: [rows, 2 columns], from real numbers to the first frequencies; forward, backward: [2 rows,
    2 columns] of pairs; inverse: [2 rows, columns], from the first frequencies to real numbers.
    """
    points = columns if kind == "inverse" else rows

    def call(op: str, *arguments: Any) -> Ref:
        return pairs.call(f"aten.{op}", *arguments)

    first = call("unsqueeze.default", call("arange.default", rows), 1)
    turns = call("mul.Tensor", first, call("arange.default", columns))
    turns = call("remainder.Scalar", turns, points)
    angle = call("mul.Tensor", turns, 2 * math.pi / points)
    cosine, sine = call("cos.default", angle), call("sin.default", angle)
    opposite = call("neg.default", sine)
    if kind == "inverse":  # each frequency but the first and the middle one stands for two
        twice = call("remainder.Scalar", call("mul.Tensor", first, 2), points)
        weight = call("clamp.default", twice, None, 1)
        weight = call("add.Tensor", weight, 1)
        halves = [call("mul.Tensor", part, weight) for part in (cosine, opposite)]
        return _between(pairs, halves, 1, (2 * rows, columns))
    of_first = _between(pairs, [cosine, sine if kind == "backward" else opposite], 2, (rows, -1))
    if kind == "real":
        return of_first
    of_second = _between(pairs, [opposite if kind == "backward" else sine, cosine], 2, (rows, -1))
    return _between(pairs, [of_first, of_second], 1, (2 * rows, 2 * columns))


def _between(pairs: Pairs, parts: list[Ref], axis: int, shape: tuple[int, int]) -> Ref:
    """The parts' rows (axis 1), or columns (axis 2), by turns."""
    wide = tuple(pairs.call("aten.unsqueeze.default", part, axis) for part in parts)
    return pairs.call("aten.reshape.default", pairs.call("aten.cat.default", wide, axis), shape)


# ---------------------------------------------------------------- arguments and layouts


def _axes(pairs: Pairs, given: Given) -> tuple[int, ...]:
    rank, axes = len(pairs.sizes(given["self"])), given["dim"]
    assert isinstance(axes, tuple)  # noqa: S101
    return tuple(axis % rank for axis in axes if isinstance(axis, int))


def _fit(sizes: tuple[int, ...], axes: Any) -> bool:
    return all(0 < sizes[axis] <= MOST_POINTS for axis in axes)


def _scaled(pairs: Pairs, x: Ref, given: Given, points: int) -> Ref:
    """normalization: 0 nothing, 1 by the root of all points, 2 by their number."""
    how = given["normalization"]
    if how == 0:
        return x
    return pairs.call("aten.mul.Tensor", x, 1 / (math.sqrt(points) if how == 1 else points))


def _last(pairs: Pairs, x: Argument, axis: int, rank: int) -> Ref:
    """The axis of a real value in the last place, and back."""
    return pairs.call("aten.transpose.int", x, axis, rank - 1)


def _moved(pairs: Pairs, x: Ref, axis: int, rank: int) -> Ref:
    """The axis of pairs in the last place but that of the pairs."""
    return x if axis == rank - 1 else pairs.call("aten.transpose.int", x, axis, rank - 1)


_back = _moved


def _flattened(pairs: Pairs, x: Ref) -> Ref:
    *outer, points, _ = pairs.shape_of(x)
    return pairs.call("aten.reshape.default", x, (*outer, 2 * points))


def _unflattened(pairs: Pairs, x: Ref) -> Ref:
    *outer, numbers = pairs.shape_of(x)
    return pairs.call("aten.reshape.default", x, (*outer, numbers // 2, 2))


TRANSFORMS = {
    "aten._fft_r2c.default": of_real,
    "aten._fft_c2c.default": of_complex,
    "aten._fft_c2r.default": to_real,
}
