"""One real profile for all tests that need any: it is made once in a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import golow
from golow.api import ProfileResult
from golow.levels import ladder

STEPS = 3


@cache
def saved_profile(base: Path) -> tuple[ProfileResult, Path]:
    """LeNet-5 in training, at eager and, where it is installed, at oneDNN; and the folder where it
    is saved, in that folder of temporary files."""
    vendor = ladder.choose("onednn", "train").level.probe().available
    folder = base / "one-profile"
    result = golow.profile(
        "lenet5",
        mode="train",
        batch=4,
        threads=1,
        levels=["eager", "onednn"] if vendor else ["eager"],
        steps=STEPS,
        time_limit=0.5,
        by_shape=True,
        folder=folder / "saved",
        cache=folder / "cache",
    )
    return result, folder / "saved"
