"""The part of a page of docs/ that a benchmark writes."""

from __future__ import annotations


def put_into(page: str, name: str, part: str) -> str:
    """The page with this text between ``<!-- name: begin -->`` and ``<!-- name: end -->``. Raises
    ValueError if these marks are missing."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the page has no {begin} and {end}")
    return f"{before}{begin}\n\n{part.strip()}\n\n{end}{after}"
