"""Replacement of PyTorch's functions, under the names by which models call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

StandIns = Mapping[tuple[Any, str], Callable[..., Any]]
"""By module or class, and name."""


def install(stand_ins: StandIns) -> None:
    """Let them stand in for as long as the process lives, as a worker does."""
    for (owner, name), function in stand_ins.items():
        setattr(owner, name, function)


@contextmanager
def installed(stand_ins: StandIns) -> Iterator[None]:
    """Let them stand in within the block. A block in a block changes nothing."""
    before = {place: vars(place[0]).get(place[1]) for place in stand_ins}
    install(stand_ins)
    try:
        yield
    finally:
        for (owner, name), function in before.items():
            if function is None:  # a class inherits it
                delattr(owner, name)
            else:
                setattr(owner, name, function)
