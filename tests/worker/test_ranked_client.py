"""Several ranks behave as one worker: their answers are joined, and a rank that dies, hangs or
refuses ends all of them within its limit, with a reason."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from golow.records.errors import OutOfTime, WorkerFailure
from golow.worker.protocol import Challenge, Marks
from golow.worker.ranked_client import RankedWorker, own_cores
from golow.worker.ranks import join_files, joined, own_name
from golow.worker.time_limits import Limits
from golow.workload.bundle import Bundle
from support.processes import all_gone
from support.workers.ranked_bundles import PLANTED, RANKS, ranked_bundle

pytestmark = pytest.mark.usefixtures("forked")

HASTY = Limits(iteration=2, quit=0.5)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return ranked_bundle(tmp_path_factory.mktemp("ranked"))


@contextmanager
def ranks(fault: str, limits: Limits = HASTY) -> Iterator[RankedWorker]:
    command = [sys.executable, str(PLANTED), fault]
    with RankedWorker(fault, command, ranks=RANKS, threads=1, limits=limits) as worker:
        yield worker


def test_a_block_has_the_times_of_every_rank_and_of_the_slowest(bundle: Bundle) -> None:
    marks = Marks(input=0, start=0, length=4, low=-1.0, high=1.0, whole=False, seed=7)
    with ranks("none") as worker:
        worker.load(bundle.folder)
        sample = worker.time(5, 1, challenge=Challenge(learning_rate=0.1, marks=marks))
        again = worker.time(5, 1, challenge=Challenge(learning_rate=0.1, marks=marks))
        pids = worker.pids
        assert worker.resident_bytes()["resident"] > 0
    assert len(sample.rank_ns) == RANKS
    assert sample.host_ns == max(sample.rank_ns, key=sum)
    assert sample.results == again.results
    assert len(sample.results) == 6
    assert all_gone(*pids)


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("dies", "died", "rank 1: died"),
        ("hangs", "hung", "ranks 0, 1: hung: no answer to `time` within 2 s"),
        ("refuses", "failed", "rank 1: "),
    ],
)
def test_a_rank_that_fails_ends_all(fault: str, kind: str, said: str, bundle: Bundle) -> None:
    with ranks(fault) as worker:
        worker.load(bundle.folder)
        pids = worker.pids
        with pytest.raises(WorkerFailure) as failure:
            worker.time(1, 0)
        assert failure.value.kind == kind
        assert said in failure.value.message
        assert all_gone(*pids)


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("dies-at-start", "died", "rank 1: died: it ended with status 3"),
        ("dies-in-load", "died", "rank 1: died: it was ended by SIGKILL"),
        ("hangs-in-load", "hung", "ranks 0, 1: hung: no answer to `load` within 1 s"),
    ],
)
def test_a_rank_that_is_never_ready_ends_all(
    fault: str, kind: str, said: str, bundle: Bundle
) -> None:
    with ranks(fault, Limits(load=1 if kind == "hung" else 60, quit=0.5)) as worker:
        pids = worker.pids
        with pytest.raises(WorkerFailure) as failure:
            worker.load(bundle.folder)
        assert failure.value.kind == kind
        assert said in failure.value.message
        assert all_gone(*pids)


def test_a_rank_that_was_stopped_is_waited_for_no_longer_than_allowed(bundle: Bundle) -> None:
    with ranks("none", Limits(quit=0.5)) as worker:
        worker.load(bundle.folder)
        worker.time(1, 0)
        os.kill(worker.pids[1], signal.SIGSTOP)
        with pytest.raises(OutOfTime):
            worker.time(1, 0, within=0.2)
        pids = worker.pids
    assert all_gone(*pids)


def test_nothing_is_left_of_a_meeting(bundle: Bundle) -> None:
    with ranks("none") as worker:
        folder = worker._folder
        worker.load(bundle.folder)
        assert (folder / "meeting").stat().st_mode & 0o777 == 0o700
        assert (folder / "meeting" / "store").exists()
    assert not folder.exists()


def test_a_level_that_does_not_start_leaves_nothing() -> None:
    with pytest.raises(WorkerFailure, match="did not start"):
        RankedWorker("none", ["/nowhere/at/all"], ranks=RANKS, threads=1)


# ---------------------------------------------------------------- answers and files

numbers = st.integers(1, 10**9)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=2, max_size=5)))  # fmt: skip  # noqa: E501
def test_the_slowest_rank_counts(times: list[list[int]]) -> None:
    answers = [
        {"ok": True, "host_ns": each, "device_ns": None, "last": 1.0 * rank}
        for rank, each in enumerate(times)
    ]
    found = joined(answers)
    assert found["host_ns"] == max(times, key=sum)
    assert found["rank_ns"] == times
    assert found["device_ns"] is None
    assert found["last"] == pytest.approx(np.mean(range(len(times))))


def test_a_loss_that_is_not_finite_in_one_rank_is_none_of_all() -> None:
    answers = [{"last": 1.0, "results": [1.0, 2.0]}, {"last": None, "results": [3.0, None]}]
    assert joined(answers) == {"last": None, "results": [2.0, None]}


def test_files_are_joined_by_what_each_rank_has_of_its_own(tmp_path: Path) -> None:
    one = np.ones(3, np.float32)
    files = [tmp_path / str(rank) for rank in range(3)]
    for rank, file in enumerate(files):
        save_file({"0/loss/loss": rank * one, "0/gradient/loss/w": one}, file)
    assert join_files(files) == ""
    found = load_file(files[0])
    assert sorted(found) == [
        *("0/gradient/loss/w", "0/loss/loss", "0/loss/rank 1/loss", "0/loss/rank 2/loss"),
    ]
    np.testing.assert_array_equal(found["0/loss/rank 2/loss"], 2 * one)
    assert own_name("loss/loss", 2) == "loss/rank 2/loss"


@pytest.mark.parametrize(
    "other",
    [
        {"parameter/w": np.array([0.0, -0.0], np.float32)},
        {"parameter/w": np.zeros(2, np.float64)},
        {"parameter/w": np.zeros((2, 1), np.float32)},
        {"loss/loss": np.zeros(1, np.float32)},
        {"parameter/w": np.zeros(2, np.float32), "parameter/v": np.zeros(2, np.float32)},
    ],
)
def test_ranks_hold_the_same_bits(other: dict[str, np.ndarray], tmp_path: Path) -> None:
    files = [tmp_path / "0", tmp_path / "1"]
    save_file({"parameter/w": np.zeros(2, np.float32)}, files[0])
    save_file(other, files[1])
    assert "ranks 0 and 1 do not hold the same bits of parameter/" in join_files(files)


def test_each_rank_has_cores_of_its_own_where_there_are_enough() -> None:
    here = sorted(os.sched_getaffinity(0))
    shares = own_cores(2, 1)
    if len(here) >= 2:
        assert not set(shares[0]) & set(shares[1])
        assert all(shares)
    assert own_cores(2, len(here) + 1) == [(), ()]
