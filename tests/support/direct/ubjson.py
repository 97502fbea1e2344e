"""Values as cuDNN's front end writes them (https://ubjson.org/type-reference/)."""

from __future__ import annotations

import struct
from typing import Any


def ubjson(value: Any) -> bytes:
    """A value as cuDNN's front end writes it."""
    if value is None:
        return b"Z"
    if isinstance(value, bool):
        return b"T" if value else b"F"
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    if isinstance(value, int):
        return b"l" + struct.pack(">i", value)
    if isinstance(value, str):
        return b"S" + ubjson(len(value.encode())) + value.encode()
    if isinstance(value, list):
        return b"[" + b"".join(map(ubjson, value)) + b"]"
    pairs = (ubjson(name)[1:] + ubjson(item) for name, item in value.items())
    return b"{" + b"".join(pairs) + b"}"
