"""The ladder: every level golow knows, in order from the most abstract to the lowest."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple

from golow.levels import compile as compile_level
from golow.levels import eager, libtorch, onednn, onnxruntime, openvino, torchscript
from golow.levels.level import Launch, Level, Variant
from golow.levels.probe import Probe
from golow.record import GolowError, Mode

__all__ = [
    "ALIASES",
    "BASELINE",
    "DEFAULT",
    "LADDER",
    "OPTIONAL",
    "REFERENCE",
    "Choice",
    "Launch",
    "Level",
    "Probe",
    "Variant",
    "choose",
]

LADDER: tuple[Level, ...] = (
    eager.LEVEL,
    torchscript.LEVEL,
    compile_level.LEVEL,
    onnxruntime.LEVEL,
    openvino.LEVEL,
    libtorch.LEVEL,
    onednn.LEVEL,
)

# What runs unless the user names levels. max-autotune is left out: its build takes minutes.
DEFAULT = (
    "eager",
    "eager:channels_last",
    "torchscript",
    "compile",
    "compile:freezing",
    "libtorch",
)

# What needs an extra: it runs by default only where that is installed.
OPTIONAL = ("onnxruntime", "openvino", "onednn")

# The vendor's library, called directly: another one on other hardware.
ALIASES = {"vendor": "onednn"}

# What the ratios are over, and what the check takes as the plain version.
BASELINE = "eager"

# The check's reference is a level like any other, one that nobody would serve.
REFERENCE = "eager:float64"


class Choice(NamedTuple):
    """A level with a variant, as the user names it."""

    level: Level
    variant: str

    @property
    def name(self) -> str:
        """``level`` or ``level:variant``."""
        return f"{self.level.name}:{self.variant}" if self.variant else self.level.name

    @property
    def modes(self) -> tuple[Mode, ...]:
        """What it can run."""
        return self.level.variants[self.variant].modes if self.variant else self.level.modes


def choose(name: str, mode: Mode) -> Choice:
    """The level of that name; raises `GolowError` with the nearest names where there is none."""
    by_name = {level.name: level for level in LADDER}
    level_name, _, variant = name.partition(":")
    level_name = ALIASES.get(level_name, level_name)
    if level_name not in by_name:
        near = get_close_matches(level_name, by_name, n=2, cutoff=0.4)
        raise GolowError(
            f"there is no level {name!r}",
            (f"did you mean {' or '.join(near)}? " if near else "")
            + f"levels are {', '.join((*by_name, *ALIASES))}; `golow levels` describes them.",
        )
    level = by_name[level_name]
    if variant and variant not in level.variants:
        known = ", ".join(f"{level.name}:{v}" for v in level.variants) or "none"
        raise GolowError(f"{level.name} has no variant {variant!r}", f"its variants: {known}.")
    choice = Choice(level, variant)
    if mode not in choice.modes:
        raise GolowError(f"{name} is for {' and '.join(choice.modes)} only, not for {mode}")
    return choice
