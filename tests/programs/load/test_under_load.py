"""Real runs of LoadGen against planted levels, a fraction of a second each."""

from __future__ import annotations

import socket
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from golow.programs.load.early_stopping import quoted
from golow.programs.load.generator import Exchange, GeneratorReport, GeneratorRequest
from golow.programs.load.level_under_load import (
    MOST_REQUESTS,
    MOST_WAITING,
    SHORTEST_ENERGY,
    LevelUnderLoad,
    Run,
)
from golow.programs.load.load_record import LoadRun
from golow.programs.load.wire import short_path
from golow.records.errors import WorkerFailure
from support.load.places import SAMPLES, SCRIPT, place_of, planted
from support.load.planted_level import EVERY, SLOW, USUAL

pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen: pip install 'golow[load]'")
pytestmark = pytest.mark.slow

SECONDS = 0.25
LONG = 20.0  # seconds that no planted answer takes, whatever else the machine does


def offered(kind: str, folder: Path, rate: float = 200.0, **settings: object) -> LoadRun:
    """A run of the server scenario."""
    with planted(kind, folder, **settings) as level:
        return level.run(Run("server", rate, SECONDS, 1))[0]


def test_accuracy_mode_asks_for_every_sample_once(tmp_path: Path) -> None:
    with planted("even", tmp_path) as level:
        for scenario in ("single-stream", "multi-stream", "server", "offline"):
            _, answers = level.run(Run(scenario, 500.0, accuracy=True))
            assert sorted(index for index, _ in answers) == list(range(SAMPLES)), scenario
            assert all(content == struct.pack("<I", index) for index, content in answers)


def test_the_temporary_folder_may_have_a_long_name(tmp_path: Path) -> None:
    """The path of a socket has 107 bytes at most."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    assert offered("even", folder).answered


def test_our_early_stopping_is_loadgens(tmp_path: Path) -> None:
    """In single stream LoadGen names its estimate of the percentile."""
    with planted("even", tmp_path, percentile=0.9) as level:
        found, _ = level.run(Run("single-stream", 1 / USUAL, SECONDS))
    ours = quoted(found.latencies, 0.9)
    assert ours is not None
    if ours.is_sure:
        assert f"percentile estimate: {round((ours.high or 0.0) * 1e9)}" in found.early_stopping
    else:
        assert "Only processed" in found.early_stopping


def test_every_latency_has_its_parts(tmp_path: Path) -> None:
    found = offered("even", tmp_path)
    assert found.outcome == "measured"
    assert found.answered == len(found.latencies) == len(found.arrivals)
    assert sum(batch.size for batch in found.batches) == found.answered
    assert list(found.arrivals) == sorted(found.arrivals)
    assert min(found.latencies) >= USUAL * 1e9
    assert found.overhead is not None
    assert found.overhead > 0
    assert found.checked > 0


def test_the_arrivals_of_a_seed_are_the_same_for_every_level(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, other = offered("even", tmp_path), offered("slow", tmp_path / "other")
    count = min(len(one.arrivals), len(other.arrivals))
    assert count > 10
    # LoadGen's trace has microseconds.
    assert one.arrivals[:count] == pytest.approx(other.arrivals[:count], abs=2000)


def test_a_slow_answer_in_fifty_is_in_the_latencies(tmp_path: Path) -> None:
    """LoadGen sends the 64 requests that the percentile needs, however slow the machine is."""
    found = offered("slow", tmp_path, latency=LONG, percentile=0.9)
    slow = sum(one >= SLOW * 1e9 for one in found.latencies)
    assert slow >= len(found.latencies) // EVERY > 0


def test_a_batcher_that_waits_too_long_shows_it(tmp_path: Path) -> None:
    found = offered("even", tmp_path, 100.0, delay=0.03, most=64)
    assert found.waiting is not None
    assert found.waiting >= 0.005
    assert min(one.waited for one in found.batches) >= 0.03e9


def test_a_run_too_short_is_unclear(tmp_path: Path) -> None:
    found = offered("even", tmp_path, 40.0, latency=LONG)
    assert found.outcome == "unclear"
    assert "more queries" in found.reason


def test_a_run_of_enough_requests_is_held(tmp_path: Path) -> None:
    found = offered("even", tmp_path, 200.0, latency=LONG, percentile=0.9)
    assert (found.outcome, found.valid) == ("held", True)


def test_an_overload_is_bounded_and_told(tmp_path: Path) -> None:
    began = time.monotonic()
    found = offered("even", tmp_path, 20_000.0, latency=0.001)
    assert found.outcome == "overload"
    assert len(found.latencies) < 20_000
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("dying", "ended by SIGKILL"),
        ("raising", "ValueError: planted"),
        ("silent", "no answer for 0.5 s while"),
    ],
)
def test_a_level_that_fails_under_load_is_told_and_gone(
    kind: str, reason: str, tmp_path: Path
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    # A level that dies or raises must not be taken for a silent one where cores are scarce.
    with planted(kind, tmp_path, patience=0.5 if kind == "silent" else LONG) as level:
        pid = level.pid
        with pytest.raises(WorkerFailure, match=reason):
            level.run(Run("server", 200.0, 1.0))
    assert not psutil.pid_exists(pid)
    left = {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert not left


def test_a_level_that_ends_with_requests_unread_has_died(tmp_path: Path) -> None:
    """The system resets such a connection, which is not the same as its end."""

    class Ended(Exception):
        """The run ended."""

    def end(found: GeneratorReport) -> NoReturn:
        raise Ended(found.ending, found.waiting)

    asked = GeneratorRequest(
        socket=str(tmp_path / "s"), folder="", scenario="server", samples=1, rate=1.0, latency=1.0,
        percentile=0.9, seconds=1.0, longest=LONG,
    )  # fmt: skip
    with socket.socket(socket.AF_UNIX) as listening:
        with short_path(asked.socket) as path:
            listening.bind(path)
        listening.listen(1)
        exchange = Exchange(asked, None, end)
        level, _ = listening.accept()
        exchange.issue([7], [0])
        level.close()
        with pytest.raises(Ended, match=r"died.*1"):
            exchange.receive()


def test_a_generator_that_fails_is_told_from_the_level(tmp_path: Path) -> None:
    with planted("even", tmp_path) as level:
        next(tmp_path.glob("s*")).unlink()  # the socket
        with pytest.raises(WorkerFailure, match="LoadGen's process: FileNotFoundError"):
            level.run(Run("server", 200.0, SECONDS))


@pytest.mark.parametrize("counts", [True, False])
def test_energy_is_that_of_the_packages_if_it_can_be_read(counts: bool, tmp_path: Path) -> None:
    if counts:
        zone = tmp_path / "powercap" / "intel-rapl:0"
        zone.mkdir(parents=True)
        for name, text in {
            "name": "package-0",
            "energy_uj": "5",
            "max_energy_range_uj": "9",
        }.items():
            (zone / name).write_text(text)
    place = place_of(tmp_path)._replace(
        command=(sys.executable, str(SCRIPT), "even"), powercap=tmp_path / "powercap"
    )
    with LevelUnderLoad("even", place) as level:
        level.load()
        found, _ = level.run(Run("server", 20.0, SHORTEST_ENERGY + 0.2))
    # The planted counter stands still.
    assert found.joules == (0.0 if counts else None)


def test_an_overload_beyond_any_rate_is_bounded_in_memory(tmp_path: Path) -> None:
    """The generator stops when too many requests wait: no queue is longer, and the process of the
    level does not grow with the rate that was asked for. LoadGen draws a million requests at most,
    however long the run is to be."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with planted("even", tmp_path, latency=0.001) as level:
        asked = level._request(Run("server", 1e6, 1e6), tmp_path)
        assert asked.seconds * asked.rate <= MOST_REQUESTS
        assert asked.most_waiting <= MOST_WAITING
        found, _ = level.run(Run("server", 1e5, SECONDS, 1))
        assert found.outcome == "overload"
        assert found.answered < 5_000  # LoadGen lets a thousand wait at this rate and latency
        sizes = {item.name: item.value for item in level.memory()}
        assert sizes["resident_peak"] < 2 * sizes["resident"]
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_answers_that_come_too_late_are_counted_as_dropped(tmp_path: Path) -> None:
    """Without an answer in time for all: the run ends, and states how many got none."""
    with planted("trickling", tmp_path, patience=1.5) as level:
        found, _ = level.run(Run("server", 200.0, SECONDS, 1))
    assert found.outcome == "overload"
    assert found.dropped > 0
    assert "still waited" in found.reason
    assert found.answered > 0
