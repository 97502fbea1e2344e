"""Which cores the load generator and the level's process run on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from golow.worker.cores import physical_cores, spread


class Cores(NamedTuple):
    """Hardware threads of the level and of the generator. shared: whether the generator has none of
    its own."""

    level: tuple[int, ...]
    generator: tuple[int, ...]
    shared: bool


def divided(threads: Sequence[int], wanted: int, root: Path = Path("/")) -> Cores:
    """Give the level this many hardware threads of these, on different physical cores, and the
    generator physical cores that the level does not touch. Where the level needs every core, both
    share all."""
    level = spread(threads, wanted, root)
    cores = physical_cores(threads, root)
    free = [core for core in cores if not set(core) & set(level)]
    if not free:
        return Cores(tuple(threads), tuple(threads), True)
    siblings = chain(*(core for core in cores if set(core) & set(level)))
    return Cores(tuple(sorted(siblings)), tuple(sorted(chain(*free))), False)
