"""The sizes that a module is compiled for: batches, and lengths of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from golow.records.errors import GolowError

Size = tuple[int, int]
"""A batch and a length; the length is 0 where no lengths were requested."""


def ascending(what: str, asked: int | Sequence[int]) -> tuple[int, ...]:
    """Return the numbers that were requested, each once. Raises `GolowError` for none, for what is
    not a whole number, and for one below 1; what: a word for the message, such as ``batch``."""
    listed = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, str) else [asked]
    for item in listed:
        if not isinstance(item, int) or isinstance(item, bool):
            raise GolowError(
                f"{what}={item!r} is not a whole number", f"give a number or a list: {what}=[1, 8]."
            )
    found = tuple(sorted(set(listed)))
    if not found:
        raise GolowError(f"there is no {what} to compile for", "give one number or more.")
    if found[0] < 1:
        unit = "sample" if what == "batch" else "token"
        raise GolowError(f"a {what} of {found[0]} has no {unit}", "use 1 or more.")
    return found


def next_size(given: int, sizes: Sequence[int]) -> int:
    """Return the smallest of ascending sizes that holds this many; 0 for none in a size of 0."""
    return next(size for size in sizes if size >= given)


def in_words(size: Size) -> str:
    """Return a size for messages: ``batch 8 of length 128``."""
    batch, length = size
    return f"batch {batch} of length {length}" if length else f"batch {batch}"


def wanted_batches(sizes: Sequence[int]) -> str:
    """Return ``batches of 1, 8`` or ``a batch of 8``."""
    numbers = ", ".join(map(str, sizes))
    return f"batches of {numbers}" if len(sizes) > 1 else f"a batch of {numbers}"


def wanted_lengths(sizes: Sequence[int]) -> str:
    """Return ``lengths of 64, 128`` or ``lengths up to 64``."""
    numbers = ", ".join(map(str, sizes))
    return f"lengths of {numbers}" if len(sizes) > 1 else f"lengths up to {numbers}"
