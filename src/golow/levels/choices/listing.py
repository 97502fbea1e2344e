"""The choices that a user asks for. Declares none."""

from __future__ import annotations

from golow.levels.choices import Choice, all_choices
from golow.levels.choices.choice import DEVICES, EVERYWHERE, MODES
from golow.records.errors import GolowError
from golow.records.near_names import meant


def listed(
    *, level: str | None = None, mode: str | None = None, device: str | None = None
) -> tuple[Choice, ...]:
    """The choices at that level, in that mode and on that device, each with what can be chosen
    there; all of them where nothing is requested. Raises `GolowError` for a word that is none."""
    level = None if level is None else level.partition("+")[0].partition(":")[0]
    _require("level", level, EVERYWHERE)
    _require("mode", mode, MODES)
    _require("device", device, DEVICES)
    return tuple(
        choice
        for choice in all_choices()
        if (level is None or level in choice.levels)
        and (mode is None or mode in choice.modes)
        and (device is None or device in choice.devices)
    )


def named(name: str) -> Choice:
    """The choice of that name, or the one with that alternative; raises `GolowError` with the
    nearest names if there is none."""
    known = {
        alternative.name: choice for choice in all_choices() for alternative in choice.alternatives
    }
    known |= {choice.name: choice for choice in all_choices()}
    if name not in known:
        raise GolowError(
            f"there is no choice {name!r}",
            f"{meant(name, known)}`golow choices` lists all.",
        )
    return known[name]


def _require(what: str, word: str | None, known: tuple[str, ...]) -> None:
    if word is not None and word not in known:
        raise GolowError(
            f"there are no choices for the {what} {word!r}",
            f"{meant(word, known)}use {', '.join(known)}.",
        )
