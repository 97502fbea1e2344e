"""The batcher: which requests go together, and that each gets its own answer."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.load.batcher import Batcher, Bucket
from golow.programs.load.wire import Answers, Asked, answers, requests

LONG = 30.0  # seconds that nothing here waits for


class Doubling:
    """Answers a sample with twice its index. gate: what a batch waits for before it runs."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()

    def warm_up(self) -> None:
        """Nothing is cold."""

    def group(self, index: int) -> int:
        return index // 1000

    def bucket(self, indices: Sequence[int]) -> Bucket:
        size = len(indices)
        return Bucket(1 << (size - 1).bit_length(), 1, size)

    def assemble(self, indices: Sequence[int]) -> list[int]:
        return [*indices, *[indices[-1]] * (self.bucket(indices).batch - len(indices))]

    def run(self, batch: list[int]) -> list[int]:
        self.began.set()
        assert self.gate.wait(LONG)
        return [2 * index for index in batch]

    def answers(self, outputs: list[int], indices: Sequence[int]) -> list[bytes]:
        return [struct.pack("<I", one) for one in outputs[: len(indices)]]


class Failing(Doubling):
    """A level that raises."""

    def run(self, batch: list[int]) -> list[int]:
        raise ValueError("planted")


class Received:
    """What a batcher sent: answers by number."""

    def __init__(self) -> None:
        self.found: dict[int, bytes] = {}
        self.hung_up = threading.Event()
        self._changed = threading.Condition()
        self._answers = Answers()

    def take(self, data: bytes) -> None:
        with self._changed:
            self.found |= dict(self._answers.add(data))
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.found) >= count, LONG)


@contextmanager
def batching(
    contexts: Sequence[Doubling], most: int, delay: float
) -> Iterator[tuple[Batcher, Received]]:
    batcher, received = Batcher(contexts, most, delay), Received()
    batcher.begin(received.take, received.hung_up.set)
    try:
        yield batcher, received
    finally:
        batcher.end()


def asked(*numbers: int) -> list[Asked]:
    return [Asked(number, number + 100) for number in numbers]


def test_a_full_batch_does_not_wait_for_the_delay() -> None:
    with batching([Doubling()], 4, LONG) as (batcher, received):
        batcher.add(asked(0, 1, 2, 3))
        received.wait(4)
        batcher.settle()
        assert [batch.size for batch in batcher.batches] == [4]


def test_a_batch_that_is_not_full_is_closed_by_its_first_request() -> None:
    delay = 0.05
    with batching([Doubling()], 4, delay) as (batcher, received):
        batcher.add(asked(0, 1, 2))
        received.wait(3)
        batcher.settle()
        (batch,) = batcher.batches
        assert (batch.size, batch.bucket, batch.left) == (3, 4, 0)
        assert batch.waited >= delay * 1e9


def test_without_a_delay_each_request_runs_at_once() -> None:
    with batching([Doubling()], 4, 0.0) as (batcher, received):
        for number in range(3):
            batcher.add(asked(number))
            received.wait(number + 1)
        batcher.settle()
        assert [batch.size for batch in batcher.batches] == [1, 1, 1]


def test_what_comes_while_the_level_runs_goes_together() -> None:
    level = Doubling()
    level.gate.clear()
    with batching([level], 8, 0.0) as (batcher, received):
        batcher.add(asked(0))
        assert level.began.wait(LONG)
        batcher.add(asked(1, 2, 3))
        batcher.add(asked(*range(4, 12)))
        level.gate.set()
        received.wait(12)
        batcher.settle()
        assert [(batch.size, batch.left) for batch in batcher.batches] == [(1, 0), (8, 3), (3, 0)]
        assert received.found == {n: struct.pack("<I", 2 * (n + 100)) for n in range(12)}


def test_samples_of_several_lengths_are_not_in_one_batch() -> None:
    level = Doubling()
    level.gate.clear()
    with batching([level], 4, 0.0) as (batcher, received):
        batcher.add(asked(0))
        assert level.began.wait(LONG)
        batcher.add(asked(1, 1000, 2, 1001, 3, 1002))
        level.gate.set()
        received.wait(7)
        batcher.settle()
        assert [(batch.size, batch.left) for batch in batcher.batches] == [(1, 0), (3, 3), (3, 0)]
        assert len(received.found) == 7


def test_a_full_batch_of_one_length_does_not_wait_for_another_length() -> None:
    with batching([Doubling()], 2, LONG) as (batcher, received):
        batcher.add(asked(1000, 0, 1))
        received.wait(2)
        assert set(received.found) == {0, 1}


def test_a_level_that_fails_while_it_warms_up_is_told() -> None:
    class Cold(Doubling):
        def warm_up(self) -> None:
            raise ValueError("planted")

    with (
        batching([Doubling(), Cold()], 1, 0.0) as (batcher, _),
        pytest.raises(ValueError, match="planted"),
    ):
        batcher.wait_ready()


def test_two_contexts_run_at_a_time() -> None:
    levels = [Doubling(), Doubling()]
    for level in levels:
        level.gate.clear()
    with batching(levels, 1, 0.0) as (batcher, received):
        batcher.add(asked(0, 1))
        assert all(level.began.wait(LONG) for level in levels)
        for level in levels:
            level.gate.set()
        received.wait(2)


def test_a_run_that_is_over_leaves_nothing_to_the_next() -> None:
    level = Doubling()
    level.gate.clear()
    with batching([level], 1, 0.0) as (batcher, received):
        batcher.add(asked(0, 1, 2))
        assert level.began.wait(LONG)
        batcher.drop()
        level.gate.set()
        other = Received()
        batcher.begin(other.take, other.hung_up.set)
        batcher.add(asked(7))
        other.wait(1)
        assert set(other.found) == {7}
        assert set(received.found) <= {0}
        batcher.settle()
        assert set(batcher.timings) == {7}


def test_a_level_that_raises_ends_the_run_at_once() -> None:
    with batching([Failing()], 1, 0.0) as (batcher, received):
        batcher.add(asked(0))
        assert received.hung_up.wait(LONG)
        assert isinstance(batcher.failure, ValueError)
        assert received.found == {}


def test_the_time_in_the_queue_is_told_from_that_in_the_level() -> None:
    level = Doubling()
    level.gate.clear()
    with batching([level], 1, 0.0) as (batcher, received):
        batcher.add(asked(0, 1))
        assert level.began.wait(LONG)
        time.sleep(0.02)
        level.gate.set()
        received.wait(2)
        batcher.settle()
        assert batcher.timings[0][1] >= 20e6  # it ran while the gate was closed
        assert batcher.timings[1][0] >= 20e6  # it waited meanwhile


# ---------------------------------------------------------------- the wire


@given(st.lists(st.binary(max_size=50), max_size=20), st.lists(st.integers(1, 40), min_size=1))
def test_answers_are_whole_however_they_arrive(contents: list[bytes], pieces: list[int]) -> None:
    data = answers(enumerate(contents))
    arriving, found = Answers(), []
    place = turn = 0
    while place < len(data):
        size = pieces[turn % len(pieces)]
        found += arriving.add(data[place : place + size])
        place, turn = place + size, turn + 1
    assert found == list(enumerate(contents))


def test_a_request_is_its_number_and_its_sample() -> None:
    assert requests([Asked(1, 2), Asked(3, 4)]) == struct.pack("<IIII", 1, 2, 3, 4)


@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_every_request_is_answered_once_under_several_senders(delay: float) -> None:
    with batching([Doubling(), Doubling()], 4, delay) as (batcher, received):
        senders = [
            threading.Thread(target=lambda k=k: [batcher.add(asked(n)) for n in range(k, 200, 4)])
            for k in range(4)
        ]
        for sender in senders:
            sender.start()
        received.wait(200)
        batcher.settle()
        assert sum(batch.size for batch in batcher.batches) == 200
        assert set(received.found) == set(range(200))
