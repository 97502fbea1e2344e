"""Rows as CSV for spreadsheets.

A spreadsheet runs a cell that begins like a formula, and names come from models and workers. Such
a text gets an apostrophe in front, which spreadsheets read as "this is text"; numbers stay numbers.
https://owasp.org/www-community/attacks/CSV_Injection
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def to_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """The rows with a header; None is an empty cell. columns: in their order, those of the first
    row unless given; empty without rows and columns."""
    header = list(columns or (rows[0] if rows else ()))
    if not header:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, header)
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _is_formula(value) else value


def _is_formula(text: str) -> bool:
    """Also after apostrophes, so that `from_cell` finds the same text again."""
    return text.lstrip("'").startswith(FORMULA)


def from_cell(text: str) -> str:
    """The text that `to_csv` made this cell of."""
    return text[1:] if text[:1] == "'" and _is_formula(text) else text
