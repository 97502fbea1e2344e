"""Levels that other packages bring: entry points of the group ``golow.levels``.

Each stands for the command of a worker that speaks the protocol, as text or as a list of arguments.
A package is imported only when its level is requested by name.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from golow.records.errors import GolowError

GROUP = "golow.levels"


def installed() -> dict[str, EntryPoint]:
    """The entry points of installed packages, by the name of their level."""
    return {point.name: point for point in entry_points(group=GROUP)}


def installed_command(point: EntryPoint) -> str | list[str]:
    """The command that the package gives for its level; raises `GolowError` if it gives none."""
    try:
        found = point.load()
    except Exception as error:  # whatever the package does when it is imported
        raise GolowError(
            f"the level {point.name!r} of another package cannot be loaded from {point.value}: "
            f"{type(error).__name__}: {error}",
            "reinstall or remove that package.",
        ) from error
    if isinstance(found, str):
        return found
    if isinstance(found, list | tuple) and all(isinstance(word, str) for word in found):
        return list(found)
    raise GolowError(
        f"the level {point.name!r} of another package is not a command: {point.value} is of type "
        f"{type(found).__name__}",
        "it must be text or a list of texts; see docs/extend/adding_a_level.md.",
    )
