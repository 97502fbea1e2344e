"""Work on one level after the other, of which Ctrl-C leaves what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from golow.levels.ladder import ChosenLevel
from golow.observer import Observer
from golow.records.comparison import Run

Made = TypeVar("Made")


def in_turn(
    choices: Iterable[tuple[ChosenLevel, Run]],
    made: list[Made],
    make: Callable[[ChosenLevel, Run], Made],
    doing: str,
    observer: Observer,
) -> bool:
    """Append what is made of each level; return false if Ctrl-C came after the first one, before
    which it is raised. doing: for the stage."""
    try:
        for choice, run in choices:
            observer.stage(f"{run.level}: {doing}")
            made.append(make(choice, run))
    except KeyboardInterrupt:
        if not made:
            raise
        return False
    return True
