"""Joins the calls of a plan that need no Python into one call of compiled code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_long, c_void_p
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

Call = Callable[[], int | None]
KERNEL = -1  # in place of the number of a primitive's arguments


class NativeCall(ctypes.Structure):
    """Call in player.cpp."""

    _fields_ = [
        ("function", c_void_p),
        ("first", c_void_p),
        ("second", c_void_p),
        ("third", c_void_p),
        ("count", c_long),
    ]


class Bound(NamedTuple):
    """A call of the plan with its addresses, for Python and for compiled code; None if that is a
    function of NumPy's."""

    call: Call
    native: NativeCall | None = None


def of_primitive(execute: Any, primitive: c_void_p, stream: c_void_p, arguments: Any) -> Bound:
    """The call of a primitive. The arguments must live as long as it."""
    count = len(arguments)
    native = NativeCall(
        address(execute), primitive.value, stream.value, ctypes.addressof(arguments), count
    )
    return Bound(partial(execute, primitive, stream, count, arguments), native)


def of_kernel(function: Any, pointers: Any, numbers: Any, pool: Any) -> Bound:
    """The call of a generated kernel. All that is given must live as long as it."""
    given = (ctypes.addressof(item) for item in (pointers, numbers, pool))
    native = NativeCall(address(function), *given, KERNEL)
    return Bound(partial(function, pointers, numbers, pool), native)


def joined(calls: Sequence[Bound], play: Any | None) -> list[Call]:
    """The calls in their order, neighbours that need no Python as one by ``play`` of player.cpp; as
    they are without it."""
    found: list[Call] = []
    for is_native, group in groupby(calls, lambda bound: bound.native is not None):
        part = list(group)
        if play is None or not is_native or len(part) == 1:
            found += (bound.call for bound in part)
            continue
        natives = [bound.native for bound in part if bound.native is not None]
        found.append(partial(play, (NativeCall * len(natives))(*natives), len(natives)))
    return found


def address(function: Any) -> int | None:
    """Where a function of a loaded library is."""
    return ctypes.cast(function, c_void_p).value
