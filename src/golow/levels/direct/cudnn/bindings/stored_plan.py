"""Compiled plans as cuDNN's frontend stores them, for programs that have the library alone.

The front end writes one object in UBJSON (https://ubjson.org/type-reference/): the library's own
plan, which is a text in JSON, and what the front end adds to its operands in each call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from golow.records.errors import Unsupported

# Numbers by their mark: int8, uint8, int16, int32, int64, float32, float64. Big-endian.
NUMBERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q", b"d": ">f", b"D": ">d"}
WORDS = {b"Z": None, b"T": True, b"F": False}
KEPT = "surrogateescape"  # bytes that are not text come back as they were
# Types of numbers that are given by value, in the front end's order.
SCALARS = ("int64", "int32", "float16", "float32", "bfloat16")


class Scalar(NamedTuple):
    """A number among the operands of a plan, which is read from the host's memory. dtype: of
    `SCALARS`."""

    identifier: int
    dtype: str
    value: float


class StoredPlan(NamedTuple):
    """plan: the library's own bytes, a text in JSON. operands: identifiers of all that it takes.
    scalars: those of them that are numbers. workspace: the bytes at which the library's workspace
    begins in that of the whole."""

    plan: bytes
    operands: tuple[int, ...]
    scalars: tuple[Scalar, ...]
    workspace: int


def stored_plan(data: bytes) -> StoredPlan:
    """Read what the front end stored. Raises `Unsupported` for a plan before which the front end
    writes into its workspace, ValueError for other bytes."""
    found = _Reader(data).value()
    if not isinstance(found, dict) or "cudnn_backend_data" not in found:
        raise ValueError("not a plan of cuDNN's frontend")
    if found.get("workspace_modifications") or found.get("variant_pack_replacements"):
        raise Unsupported("cudnn", "the front end prepares memory for a plan in each call")
    values = found.get("pass_by_values") or []
    return StoredPlan(
        found["cudnn_backend_data"].encode(errors=KEPT),
        tuple(found["variant_pack_uids"]),
        tuple(
            Scalar(name, SCALARS[item["index"]], _number(item["value"])) for name, item in values
        ),
        found.get("fe_workspace_size", 0),
    )


def _number(written: str | float) -> float:
    """Floating point numbers of every type are texts: the bits of a float32 in hexadecimal
    (``cudnn_frontend_utils.h``); whole numbers are numbers."""
    if not isinstance(written, str):
        return written
    number: float = struct.unpack(">f", bytes.fromhex(written))[0]
    return number


class _Reader:
    """Reads values, without the sizes and types of whole containers that the format allows."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def value(self) -> Any:
        mark = self._take(1)
        if mark in WORDS:
            return WORDS[mark]
        if mark in NUMBERS:
            return self._number(NUMBERS[mark])
        if mark in (b"S", b"H"):
            text = self._text()
            return text if mark == b"S" else int(text)
        if mark == b"C":
            return self._take(1).decode()
        if mark == b"[":
            return list(self._until(b"]"))
        if mark == b"{":
            return dict(self._pairs())
        raise ValueError(f"unknown mark {mark!r} in a stored plan")

    def _until(self, end: bytes) -> Iterator[Any]:
        while self._data[self._at : self._at + 1] != end:
            yield self.value()
        self._at += 1

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        while self._data[self._at : self._at + 1] != b"}":
            name = self._text()
            yield name, self.value()
        self._at += 1

    def _text(self) -> str:
        return self._take(int(self.value())).decode(errors=KEPT)

    def _number(self, form: str) -> int | float:
        number: int | float = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return number

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if size < 0 or len(taken) != size:
            raise ValueError("a stored plan ends too early")
        self._at += size
        return taken
