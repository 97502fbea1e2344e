"""In which pieces a text goes through plans that each take a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def pieces(begin: int, end: int, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where each piece of the tokens from begin to below end starts, and how many it has.

    counts: in ascending order, from 1 on. The last piece may begin with tokens that were taken
    before, where that saves plans: their rows of the cache are then written again, with the same
    content. No piece goes beyond the end, so nothing is padded.
    """
    while begin < end:
        left = end - begin
        whole = next((count for count in counts if left <= count <= end), 0)
        count = whole or max(count for count in counts if count <= left)
        begin = min(begin, end - count)
        yield begin, count
        begin += count
