"""The figures of a level, computed from the blocks of a race of texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golow.measure import stats
from golow.measure.rounds import Race
from golow.programs.generation.timing import decoding, prefilling
from golow.records.comparison import Block, Quantity, Ratio

SLOW = 99  # percentile of the tokens' times


class TextFigures(NamedTuple):
    """Seconds up to the first token, of a later one (median), and of the slow ones, with ratios to
    the first level of the race."""

    first_token: Quantity | None = None
    token: Quantity | None = None
    slow_token: Quantity | None = None
    ratio: Ratio | None = None
    first_ratio: Ratio | None = None
    blocks: tuple[Block, ...] = ()


def race_figures(race: Race, name: str) -> TextFigures:
    """The figures of a level that took part."""
    blocks = race.blocks.get(name, ())
    if not blocks:
        return TextFigures()
    first, later = prefilling(race), decoding(race)
    slow = [float(np.percentile(block.host_ns[1:], SLOW)) / 1e9 for block in blocks]
    return TextFigures(
        first_token=first.time(name),
        token=later.time(name),
        slow_token=stats.level_time(slow, race.seed),
        ratio=later.ratio(name),
        first_ratio=first.ratio(name),
        blocks=blocks,
    )
