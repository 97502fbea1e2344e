"""Workers that are started before they are needed, where comparisons share a GPU."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from golow.check.reference import checking
from golow.levels import ladder
from golow.levels.ladder import Launch
from golow.levels.starter import Starter
from golow.worker.turn import Turn
from support.processes import all_gone
from support.workers.bundles import network_bundle


@pytest.mark.slow
def test_workers_are_ahead_of_their_need_and_end_with_the_starter(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "train", threads=1)
    before = {child.pid for child in psutil.Process().children()}
    with Starter(turn=Turn(tmp_path / "turns")) as starter:
        built = ladder.choose("libtorch", "train")
        eager = ladder.choose("eager", "train")
        starter.ahead([checking("train", "cpu"), eager, built], "train", 1)
        ahead = {child.pid for child in psutil.Process().children()} - before
        assert len(ahead) == 2, "of the three the built one waits for its program"
        launch = Launch(("cat",))  # would end with the pipe, and answers nothing
        worker = starter.worker("eager", launch, bundle)
        assert worker.pid in ahead
        with worker:
            worker.load(bundle.folder)
            assert worker.time(1, 0).host_ns
        with starter.worker("eager", launch, bundle) as second:
            assert second.pid not in ahead, "the one that was ahead is taken"
            second.wake("train")
    assert all_gone(*ahead)


def test_nothing_is_ahead_where_nobody_shares_the_card(tmp_path: Path) -> None:
    """It would disturb what a start costs."""
    before = {child.pid for child in psutil.Process().children()}
    with Starter() as starter:
        starter.ahead([checking("train", "cpu")], "train", 1)
        assert {child.pid for child in psutil.Process().children()} == before
