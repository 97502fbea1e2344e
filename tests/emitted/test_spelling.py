"""Numbers as C++ has them."""

from __future__ import annotations

import math

from golow.levels.direct.emit.spelling import single


def test_numbers_without_digits_are_no_names_of_functions() -> None:
    """``nanf`` is one of C's, whose address a kernel would get."""
    assert single(math.nan) == '__builtin_nanf("")'
    assert single(-math.inf) == "-__builtin_inff()"
    assert single(0.5) == "0.5f"
