"""Numbers, lists and texts as C++ has them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable


def listed(items: Iterable[object]) -> str:
    """``{1, 2}``."""
    return "{" + ", ".join(map(str, items)) + "}"


def text(value: str) -> str:
    """A literal of a text. C++ joins octal escapes of at most three digits."""
    plain = json.dumps(value, ensure_ascii=False)
    return "".join(
        c if " " <= c <= "~" else "".join(f"\\{byte:03o}" for byte in c.encode()) for c in plain
    )


def single(value: float) -> str:
    """A float32."""
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "-__builtin_inff()" if value < 0 else "__builtin_inff()"
    return f"{value!r}f"
