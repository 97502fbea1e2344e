"""Levels that are built several at a time; Ctrl-C meanwhile, and while they end."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from golow.observer import Silent
from golow.programs.load import load
from golow.programs.load.tested_level import TestedLevel
from golow.records.comparison import Check
from support.load.places import SCRIPT, place_of
from support.processes import all_gone

pytestmark = pytest.mark.slow

HANGS = (sys.executable, "-c", "import time; time.sleep(3600)")
NOTHING: Any = None  # a proof that no level gets to


class Interrupted(TestedLevel):
    """Ctrl-C comes while others are built."""

    def build(self) -> None:
        time.sleep(1)
        raise KeyboardInterrupt


class Slow(TestedLevel):
    """Ctrl-C comes while its process ends."""

    ends = 0

    def end(self) -> None:
        self.ends += 1
        if self.ends == 1:
            raise KeyboardInterrupt
        super().end()


def running() -> set[int]:
    """Process ids of what this process started and what has not ended."""
    children = psutil.Process().children()
    return {child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE}


def test_levels_are_built_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "CORES_TO_BUILD", 1)
    place = place_of(tmp_path)._replace(command=(sys.executable, str(SCRIPT), "even"))
    levels = [TestedLevel(name, place, NOTHING) for name in ("one", "two", "three")]
    before = running()
    try:
        load._build(levels, Silent())
        assert all(level.record().build for level in levels)
        time.sleep(0.2)  # a process that ends with the thread which started it is gone by then
        assert len(running() - before) == len(levels)
    finally:
        for level in levels:
            level.end()


def test_an_interrupt_ends_what_is_being_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "CORES_TO_BUILD", 1)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    place = place_of(tmp_path)._replace(command=HANGS)
    names = ("one", "two", "three")
    levels = [Interrupted("zero", place, NOTHING), *(TestedLevel(n, place, NOTHING) for n in names)]
    with pytest.raises(KeyboardInterrupt):
        load._build(levels, Silent())
    new = {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert all_gone(*new)


def test_an_interrupt_while_levels_end_loses_no_result(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen: pip install golow[load]")
    place = place_of(tmp_path, scenarios=("offline",), seconds=0.2, repeats=1)
    place = place._replace(command=(sys.executable, str(SCRIPT), "even"))
    right: Any = SimpleNamespace(
        judge=lambda answers: Check(verdict="match"),
        judge_some=lambda answers: Check(verdict="match"),
    )
    levels = [Slow("one", place, right), TestedLevel("two", place, right)]
    before = running()
    assert load.loaded(levels, place.plan, Silent())
    assert all(level.record().of("offline", None) for level in levels)
    for level in levels:
        level.end()
    assert all_gone(*(running() - before))
