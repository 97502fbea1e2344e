"""One real profile for all tests that need any: it is made once in a run of the tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import golow
from golow.api import ProfileResult, load_profile
from golow.levels import ladder
from support.direct.layouts import settle_layouts
from support.one_run import one_at_a_time

STEPS = 3


@cache
def saved_profile(base: Path) -> tuple[ProfileResult, Path]:
    """LeNet-5 in training, at eager and, where it is installed, at oneDNN; and the folder where it
    is saved, in that folder of temporary files."""
    with one_at_a_time(base, "one-profile") as folder:
        saved = folder / "saved"
        if not saved.exists():
            result = _make(folder, saved)
            assert load_profile(saved).profiles == result.profiles
    return load_profile(saved), saved


def _make(folder: Path, saved: Path) -> ProfileResult:
    vendor = ladder.choose("onednn", "train").level.probe().available
    if vendor:
        settle_layouts(folder / "cache", "lenet5", mode="train", batch=4, threads=1)
    return golow.profile(
        "lenet5",
        mode="train",
        batch=4,
        levels=["eager", "onednn"] if vendor else ["eager"],
        steps=STEPS,
        threads=1,
        time_limit=0.5,
        by_shape=True,
        folder=saved,
        cache=folder / "cache",
    )
