"""Completions that a shell offers after Tab: names of models, levels, data sets and studies."""

from __future__ import annotations

from collections.abc import Iterable


def models(incomplete: str) -> list[str]:
    """Models of the zoo that begin with this text."""
    from golow.models import ZOO

    return _beginning(ZOO, incomplete)


def levels(incomplete: str) -> list[str]:
    """The list of levels, once for each completion of its last name."""
    from golow.levels.ladder import ALIASES, LADDER

    before, comma, last = incomplete.rpartition(",")
    known = [level.name for level in LADDER]
    known += [f"{level.name}:{variant}" for level in LADDER for variant in level.variants]
    taken = set(before.split(","))
    left = [name for name in (*known, *ALIASES) if name not in taken]
    return [f"{before}{comma}{name}" for name in _beginning(left, last)]


def datasets(incomplete: str) -> list[str]:
    """Data sets that begin with this text."""
    from golow.data.catalog import CATALOG, FOLDER

    return _beginning((*CATALOG, FOLDER), incomplete)


def studies(incomplete: str) -> list[str]:
    """Built-in studies that begin with this text."""
    from golow.programs.study.file import built_in

    return _beginning(built_in(), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
