"""The word for a ratio, and what it needs. Imports nothing heavy, for readers of records."""

from __future__ import annotations

from golow.records.comparison import Word

CLAIM_MARGIN = 0.01
"""A difference must exceed this to be called one. Two processes of the same program differ by up to
about a percent as long as they live (address layout, huge pages), which no number of rounds
averages out; and looking at the interval as it narrows adds to its error."""

SAME_MARGIN = 0.02
"""How far from 1 the whole interval may reach to be called ``same``: twice the claim's margin, so
that equal programs with unlucky layouts are still called equal."""

LEAST_ROUNDS = 5
"""The fewest rounds that allow a word. With fewer, even the whole range of the rounds covers the
true median in fewer than 88 of 100 cases (1 - 2/2^n), so none of their intervals is a 95% one."""


def word(low: float, high: float) -> Word:
    """The conclusion that the interval of a ratio allows; ``unclear`` if it allows none.

    An invalid interval (a NaN, or its ends exchanged) is ``unclear`` too.
    """
    if not low <= high:
        return "unclear"
    if high < 1 - CLAIM_MARGIN:
        return "faster"
    if low > 1 + CLAIM_MARGIN:
        return "slower"
    if low >= 1 - SAME_MARGIN and high <= 1 + SAME_MARGIN:
        return "same"
    return "unclear"
