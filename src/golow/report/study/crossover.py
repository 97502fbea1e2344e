"""Where a level overtakes eager, or eager it: where along an axis the ratio passes 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from golow.report.study.measures import RATIO
from golow.report.study.planes import Axis, Place, Plane


class Crossing(NamedTuple):
    """at: the place on the other axis. value: the number on this one, between two measured ones.
    faster: whether the level is the faster one beyond it. clear: whether the words of both measured
    ones report it; published figures, which have no words, are clear."""

    at: Place
    value: float
    faster: bool
    clear: bool


def crossings(plane: Plane, level: str, axis: Axis) -> Iterator[Crossing]:
    """Where the level's ratio to eager passes 1 along this axis, which is numeric, for each place
    of the other one. Between two measured numbers the logarithm of the ratio is taken to be linear
    in the logarithm of the number; no crossing is outside of what was measured."""
    rows, along = plane.of(level), plane.places(axis)
    for at in plane.places(plane.y if axis == plane.x else plane.x):
        found = [
            (int(place), math.log(ratio.middle), row.word in (None, "faster", "slower"))
            for place in along
            if (row := rows.get((place, at) if axis == plane.x else (at, place)))
            and (ratio := RATIO.of(row))
            and place
        ]
        for (before, left, sure), (after, right, sure_too) in pairwise(found):
            if left * right < 0:
                value = before * (after / before) ** (left / (left - right))
                yield Crossing(at, value, faster=right < 0, clear=sure and sure_too)
