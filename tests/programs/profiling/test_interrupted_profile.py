"""Ctrl-C while levels are profiled: those so far are kept, shown and saved."""

from __future__ import annotations

from pathlib import Path

import pytest

import golow
from golow.observer import Silent
from golow.report.progress import ProgressDisplay
from support.command import golow as command

LEVELS = ["eager", "torchscript"]
AT_THE_SECOND = "torchscript: profiling"


class Impatient(Silent):
    """An observer that interrupts at that stage."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def stage(self, text: str) -> None:
        if text == self._stage:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("forked")
def test_an_interrupt_keeps_the_levels_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes to the main thread, which is about to profile the second level."""
    monkeypatch.setattr(ProgressDisplay, "stage", Impatient(AT_THE_SECOND).stage)
    monkeypatch.setattr("golow.commands.profile.find_spec", lambda _: None)  # draws no figures
    small = ("--batch", "2", "--threads", "1", "--steps", "1", "--time-limit", "0.05")
    ended = command(
        "profile", "mlp", *small, "--levels", ",".join(LEVELS), "--save", "saved", folder=tmp_path
    )
    assert ended.status == 130, ended.error
    assert "interrupted: partial results" in ended.output and "profile: saved" in ended.output
    [found] = golow.load_profile(tmp_path / "saved").profiles
    assert found.interrupted and [level.level for level in found.levels] == ["eager"]
    assert found.levels[0].operators and found.levels[0].time is not None


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("stage", ["eager: profiling", "capturing the graph"])
def test_an_interrupt_before_the_first_level_is_an_interrupt(stage: str) -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        golow.profile(
            "mlp", levels=LEVELS[:1], batch=2, threads=1, steps=1, time_limit=0.05,
            observer=Impatient(stage),
        )  # fmt: skip
    assert not isinstance(raised.value, golow.ProfileInterrupted)
