"""Definitions of ATen's calls on complex numbers, on pairs of real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from golow.lower.aten.fourier import TRANSFORMS
from golow.lower.ir.graph import Argument, Ref, Symbol

if TYPE_CHECKING:
    from golow.lower.aten.complex_numbers import Pairs

COMPLEX = "complex64"
FROM_PARTS, TO_PAIRS = "aten.complex.default", "aten.view_as_real.default"
"""Conversions before and after an operation without a definition. None of the model's own are
left then."""
Parts = tuple[Argument, Ref | None]
"""The real part and the imaginary one; nothing in place of that of a real number."""
Given = dict[str, Argument]
Definition = Callable[["Pairs", Given], Ref | None]


class UnknownError(Exception):
    """An operation on complex numbers that has no definition."""


def _same(pairs: Pairs, given: Given) -> Ref:
    item = given["self"]
    assert isinstance(item, Ref)  # noqa: S101
    return item


def _converted(pairs: Pairs, given: Given) -> Ref:
    """A conversion to complex numbers, of complex or real ones."""
    item, dtype = given["self"], given["dtype"]
    wanted = isinstance(dtype, Symbol) and dtype.name == COMPLEX
    if not isinstance(item, Ref) or not (wanted or dtype is None):
        raise UnknownError
    if pairs.is_complex(item):
        return item
    real = pairs.call("aten.to.dtype", item, Symbol(kind="dtype", name="float32"))
    return pairs.pair(real, pairs.call("aten.zeros_like.default", real))


def _product(pairs: Pairs, given: Given) -> Ref:
    one, other = given["self"], given["other"]
    if not (pairs.is_complex(one) and pairs.is_complex(other)):
        real, pair = (one, other) if pairs.is_complex(other) else (other, one)
        wide = pairs.call("aten.unsqueeze.default", real, -1) if isinstance(real, Ref) else real
        if not isinstance(real, Ref | int | float):
            raise UnknownError
        return pairs.call("aten.mul.Tensor", pair, wide)
    return pairs.product(pairs.both_parts(one), pairs.both_parts(other))


def _sum(op: str, pairs: Pairs, given: Given) -> Ref:
    one, other = given["self"], given["other"]
    if given.get("alpha", 1) != 1:
        raise UnknownError
    if pairs.is_complex(one) and pairs.is_complex(other):
        return pairs.call(op, one, other)
    (a, b), (c, d) = (pairs.both_parts(item) for item in (one, other))
    real = pairs.call(op, a, c)
    if d is None:
        assert b is not None  # noqa: S101
        return pairs.pair(real, pairs.like(b, real))
    turned = d if op == "aten.add.Tensor" else pairs.call("aten.neg.default", d)
    return pairs.pair(real, pairs.like(turned, real))


def _quotient(pairs: Pairs, given: Given) -> Ref:
    one, other = given["self"], given["other"]
    if not pairs.is_complex(other):
        wide = pairs.call("aten.unsqueeze.default", other, -1) if isinstance(other, Ref) else other
        return pairs.call("aten.div.Tensor", one, wide)
    return pairs.product(pairs.both_parts(one), pairs.parts(_inverse(pairs, {"self": other})))


def _inverse(pairs: Pairs, given: Given) -> Ref:
    squared = pairs.call("aten.mul.Tensor", given["self"], given["self"])
    size = pairs.call("aten.sum.dim_IntList", squared, (-1,), True)
    return pairs.call("aten.div.Tensor", _conjugate(pairs, given), size)


def _subtracted(pairs: Pairs, given: Given) -> Ref:
    """Trace of ``other - self``."""
    if pairs.is_complex(given["other"]) or given.get("alpha", 1) != 1:
        raise UnknownError
    real, imaginary = pairs.parts(_negative(pairs, given))
    real = pairs.call("aten.add.Tensor", real, given["other"])
    return pairs.pair(real, pairs.like(imaginary, real))


def _sign(pairs: Pairs, given: Given) -> Ref:
    """z / |z|, and 0 where z is 0."""
    size = pairs.call("aten.unsqueeze.default", _size(pairs, given), -1)
    none = pairs.call("aten.eq.Scalar", size, 0)
    size = pairs.call("aten.masked_fill.Scalar", size, none, 1.0)
    return pairs.call("aten.div.Tensor", given["self"], size)


def _conjugate(pairs: Pairs, given: Given) -> Ref:
    real, imaginary = pairs.parts(given["self"])
    return pairs.pair(real, pairs.call("aten.neg.default", imaginary))


def _negative(pairs: Pairs, given: Given) -> Ref:
    return pairs.call("aten.neg.default", given["self"])


def _size(pairs: Pairs, given: Given) -> Ref:
    squared = pairs.call("aten.mul.Tensor", given["self"], given["self"])
    return pairs.call("aten.sqrt.default", pairs.call("aten.sum.dim_IntList", squared, (-1,)))


def _part(index: int, pairs: Pairs, given: Given) -> Ref:
    return pairs.call("aten.select.int", given["self"], -1, index)


def _polar(pairs: Pairs, given: Given) -> Ref:
    parts = (
        pairs.call(
            "aten.mul.Tensor", given["abs"], pairs.call(f"aten.{name}.default", given["angle"])
        )
        for name in ("cos", "sin")
    )
    return pairs.pair(*parts)


def _of_parts(pairs: Pairs, given: Given) -> Ref:
    real, imaginary = given["real"], given["imag"]
    assert isinstance(real, Ref) and isinstance(imaginary, Ref)  # noqa: S101
    return pairs.pair(real, imaginary)


def _exponential(pairs: Pairs, given: Given) -> Ref:
    real, imaginary = pairs.parts(given["self"])
    return _polar(pairs, {"abs": pairs.call("aten.exp.default", real), "angle": imaginary})


def _matrix_product(op: str, second: str, pairs: Pairs, given: Given) -> Ref:
    (a, b), (c, d) = (pairs.parts(given[name]) for name in ("self", second))
    times = partial(pairs.call, op)
    real = pairs.call("aten.sub.Tensor", times(a, c), times(b, d))
    return pairs.pair(real, pairs.call("aten.add.Tensor", times(a, d), times(b, c)))


def _angle(pairs: Pairs, given: Given) -> Ref:
    real, imaginary = pairs.parts(given["self"])
    return pairs.call("aten.atan2.default", imaginary, real)


def _equal(pairs: Pairs, given: Given) -> Ref:
    """Where complex numbers are a real one."""
    if not isinstance(given["other"], int | float):
        raise UnknownError
    real, imaginary = pairs.parts(given["self"])
    same = pairs.call("aten.eq.Scalar", real, given["other"])
    return pairs.call("aten.logical_and.default", same, pairs.call("aten.eq.Scalar", imaginary, 0))


def _chosen(pairs: Pairs, given: Given) -> Ref:
    one, other = given["self"], given["other"]
    if not (pairs.is_complex(one) and pairs.is_complex(other)):
        raise UnknownError
    condition = pairs.call("aten.unsqueeze.default", given["condition"], -1)
    return pairs.call("aten.where.self", condition, one, other)


def _none(pairs: Pairs, given: Given) -> Ref:
    return pairs.call("aten.zeros.default", (*pairs.shape(), 2))


def _zeros(pairs: Pairs, given: Given) -> Ref:
    return pairs.call("aten.new_zeros.default", given["self"], (*pairs.shape(), 2))


def _copied(pairs: Pairs, given: Given) -> Ref:
    """Values in the place of others."""
    if not pairs.is_complex(given["src"]):
        raise UnknownError
    return _expanded(pairs, {"self": given["src"]})


def _padded(pairs: Pairs, given: Given) -> Ref:
    sides = given["pad"]
    if given.get("value", 0) not in (0, None) or not isinstance(sides, tuple):
        raise UnknownError
    return pairs.call("aten.constant_pad_nd.default", given["self"], (0, 0, *sides), 0.0)


def _joined(pairs: Pairs, given: Given) -> Ref:
    parts, axis = given["tensors"], given.get("dim", 0)
    if not isinstance(parts, tuple) or not all(pairs.is_complex(part) for part in parts):
        raise UnknownError
    assert isinstance(axis, int)  # noqa: S101
    return pairs.call("aten.cat.default", parts, axis % len(pairs.shape()))


def _reduced(op: str, pairs: Pairs, given: Given) -> Ref:
    """The sum, or the mean, along axes; all of them if none is named."""
    rank, axes = pairs.rank(given["self"]), given.get("dim")
    named = axes if isinstance(axes, tuple) and axes else tuple(range(rank))
    counted = tuple(axis % rank for axis in named if isinstance(axis, int))
    return pairs.call(op, given["self"], counted, given.get("keepdim", False))


def _reshaped(pairs: Pairs, given: Given) -> Ref:
    return pairs.call("aten.reshape.default", given["self"], (*pairs.shape(), 2))


def _expanded(pairs: Pairs, given: Given) -> Ref:
    return pairs.call("aten.expand.default", given["self"], (*pairs.shape(), 2))


def _along(op: str, names: Sequence[str], pairs: Pairs, given: Given) -> Ref:
    """An operation along axes, which are counted from the first one. A new axis counts as one."""
    axes = pairs.rank(given["self"]) + (op == "aten.unsqueeze.default")

    def counted(name: str, item: Any) -> Any:
        if name not in ("dim", "dim0", "dim1", "dims"):
            return item
        return tuple(axis % axes for axis in item) if isinstance(item, tuple) else item % axes

    found = [counted(name, given[name]) for name in names]
    last = (axes,) if op == "aten.permute.default" else ()
    return pairs.call(op, given["self"], *((*found[0], *last),) if last else found)


ALONG = {
    "aten.unsqueeze.default": ("dim",),
    "aten.transpose.int": ("dim0", "dim1"),
    "aten.permute.default": ("dims",),
    "aten.slice.Tensor": ("dim", "start", "end", "step"),
    "aten.select.int": ("dim", "index"),
    "aten.roll.default": ("shifts", "dims"),
    "aten.flip.default": ("dims",),
    "aten.slice_scatter.default": ("src", "dim", "start", "end", "step"),
    "aten.select_scatter.default": ("src", "dim", "index"),
}
DEFINITIONS: dict[str, Definition] = {
    "aten.view_as_complex.default": _same,
    "aten.view_as_real.default": _same,
    "aten._conj.default": _conjugate,
    "aten._conj_physical.default": _conjugate,
    "aten.conj.default": _conjugate,
    "aten.mul.Tensor": _product,
    "aten.mul.Scalar": _product,
    "aten.mm.default": partial(_matrix_product, "aten.mm.default", "mat2"),
    "aten.bmm.default": partial(_matrix_product, "aten.bmm.default", "mat2"),
    "aten.matmul.default": partial(_matrix_product, "aten.matmul.default", "other"),
    "aten.add.Tensor": partial(_sum, "aten.add.Tensor"),
    "aten.sub.Tensor": partial(_sum, "aten.sub.Tensor"),
    "aten.div.Tensor": _quotient,
    "aten.div.Scalar": _quotient,
    "aten.exp.default": _exponential,
    "aten.rsub.Scalar": _subtracted,
    "aten.rsub.Tensor": _subtracted,
    "aten.reciprocal.default": _inverse,
    "aten.sgn.default": _sign,
    "aten.neg.default": _negative,
    "aten.abs.default": _size,
    "aten.angle.default": _angle,
    "aten.eq.Scalar": _equal,
    "aten.where.self": _chosen,
    "aten.zeros.default": _none,
    "aten.real.default": partial(_part, 0),
    "aten.imag.default": partial(_part, 1),
    "aten.polar.default": _polar,
    "aten.complex.default": _of_parts,
    "aten.reshape.default": _reshaped,
    "aten.view.default": _reshaped,
    "aten._unsafe_view.default": _reshaped,
    "aten.flatten.using_ints": _reshaped,
    "aten.squeeze.default": _reshaped,
    "aten.squeeze.dim": _reshaped,
    "aten.squeeze.dims": _reshaped,
    "aten.expand.default": _expanded,
    "aten.new_zeros.default": _zeros,
    "aten.copy.default": _copied,
    "aten.constant_pad_nd.default": _padded,
    "aten.cat.default": _joined,
    "aten.sum.default": partial(_reduced, "aten.sum.dim_IntList"),
    "aten.mean.default": partial(_reduced, "aten.mean.dim"),
    "aten.sum.dim_IntList": partial(_reduced, "aten.sum.dim_IntList"),
    "aten.mean.dim": partial(_reduced, "aten.mean.dim"),
    "aten.to.dtype": _converted,
    "aten.to.device": _converted,
    "aten._to_copy.default": _converted,
}
DEFINITIONS.update(TRANSFORMS)
DEFINITIONS.update({op: partial(_along, op, names) for op, names in ALONG.items()})
KEPT = ("clone", "alias", "detach", "resolve_conj", "resolve_neg", "contiguous")
DEFINITIONS.update(dict.fromkeys((f"aten.{name}.default" for name in KEPT), _same))
