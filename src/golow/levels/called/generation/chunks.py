"""Division of a text into pieces for plans that each process a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def pieces(begin: int, end: int, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield start and number of tokens of each piece from begin to below end. counts: ascending,
    beginning with 1. The last piece may begin with tokens that were processed before, if that saves
    plans: their rows of the cache are then written again, with the same content. No piece extends
    beyond the end, so nothing is padded.
    """
    while begin < end:
        left = end - begin
        whole = next((count for count in counts if left <= count <= end), 0)
        count = whole or max(count for count in counts if count <= left)
        begin = min(begin, end - count)
        yield begin, count
        begin += count
