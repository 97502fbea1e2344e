"""Joins the calls of a plan that need no Python into one call of compiled code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_long, c_void_p
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

Call = Callable[[], int | None]
KERNEL = -1  # in place of the number of a primitive's arguments


class NativeCall(ctypes.Structure):
    """Call in compiled_calls.cpp."""

    _fields_ = [
        ("function", c_void_p),
        ("first", c_void_p),
        ("second", c_void_p),
        ("third", c_void_p),
        ("count", c_long),
    ]


class NativeUse(ctypes.Structure):
    """Use in compiled_calls.cpp."""

    _fields_ = [
        ("user", c_void_p),
        ("place", c_long),
        ("offset", c_long),
        ("is_pointer", c_long),
    ]


class NativeIteration(ctypes.Structure):
    """Iteration in compiled_calls.cpp."""

    _fields_ = [
        ("set_threads", c_void_p),
        ("set_address", c_void_p),
        ("addresses", POINTER(c_long)),
        ("uses", POINTER(NativeUse)),
        ("calls", POINTER(NativeCall)),
        ("threads", c_long),
        ("use_count", c_long),
        ("call_count", c_long),
    ]


class Player(NamedTuple):
    """Functions of compiled_calls.cpp."""

    play: Callable[..., int]
    play_at: Callable[..., int]


class Use(NamedTuple):
    """A place where a call has an address of the caller's.

    user: a memory of oneDNN, or with ``is_pointer`` one of a kernel's pointers. place: number of
    the address; offset: bytes from there.
    """

    user: int
    place: int
    offset: int
    is_pointer: bool


class Start(NamedTuple):
    """Beginning of an iteration on the caller's memory. addresses: array of them; uses: where calls
    have them. set_address: of a memory of oneDNN. set_threads: sets the number of threads in
    OpenMP; None to leave it."""

    addresses: Any
    uses: Sequence[Use]
    set_address: Any
    set_threads: Any | None = None
    threads: int = 0


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


def joined(calls: Sequence[Bound], player: Player | None) -> list[Call]:
    """The calls in their order, neighbours that need no Python as one by the player; as they are
    without it."""
    found: list[Call] = []
    for is_native, group in groupby(calls, lambda bound: bound.native is not None):
        part = list(group)
        if player is None or not is_native or len(part) == 1:
            found += (bound.call for bound in part)
            continue
        natives = _natives(part)
        found.append(partial(player.play, natives, len(natives)))
    return found


def joined_at(start: Start, calls: Sequence[Bound], player: Player) -> list[Call]:
    """The calls as `joined` has them. The first one also lets all of them use the addresses that
    are in the array then, and sets the number of threads."""
    first = next((k for k, bound in enumerate(calls) if bound.native is None), len(calls))
    iteration = NativeIteration(
        None if start.set_threads is None else address(start.set_threads),
        address(start.set_address),
        start.addresses,
        (NativeUse * len(start.uses))(*(NativeUse(*use) for use in start.uses)),
        _natives(calls[:first]),
        start.threads,
        len(start.uses),
        first,
    )
    # A reference is the argument that ctypes converts fastest.
    return [partial(player.play_at, ctypes.byref(iteration)), *joined(calls[first:], player)]


def _natives(calls: Sequence[Bound]) -> Any:
    found = [bound.native for bound in calls if bound.native is not None]
    return (NativeCall * len(found))(*found)


def address(function: Any) -> int | None:
    """Where a function of a loaded library is."""
    return ctypes.cast(function, c_void_p).value
