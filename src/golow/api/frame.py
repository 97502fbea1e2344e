"""Rows as a data frame, where pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from golow.records.errors import GolowError

if TYPE_CHECKING:
    import pandas


def frame(rows: Sequence[Mapping[str, object]]) -> pandas.DataFrame:
    """Return the rows as a data frame; raises `GolowError` without pandas."""
    try:
        import pandas
    except ImportError as error:
        raise GolowError("pandas is not installed", "pip install 'golow[pandas]'") from error
    return pandas.DataFrame(rows)
