"""Memory of a worker on GPUs whose drivers tell more or less."""

from __future__ import annotations

from typing import cast

import pytest

from golow.measure.gpu.nvml import Card
from golow.measure.held_memory import HeldMemory
from golow.worker.client import Worker


class FakeCard:
    """used: bytes of the whole GPU, None where the driver does not tell; listed: the process's."""

    def __init__(self, used: int | None, listed: int = 0) -> None:
        self.used, self.listed = used, listed

    def used_bytes(self) -> int | None:
        return self.used

    def process_bytes(self, pid: int) -> int:
        return self.listed


class FakeWorker:
    pid = 1

    def __init__(self) -> None:
        self.iterations = 0

    def time(self, iterations: int, warm_up: int) -> None:
        self.iterations += iterations

    def resident_bytes(self) -> dict[str, int]:
        return {"resident": 300, "resident_peak": 400}


def held(card: FakeCard | None, more: int = 0) -> tuple[HeldMemory, Worker]:
    """The memory of a worker that makes the GPU fuller by so many bytes."""
    memory, worker = HeldMemory(cast("Card | None", card)), cast("Worker", FakeWorker())
    memory.read_before()
    if card is not None and card.used is not None:
        card.used += more
    memory.read_ready(worker)
    return memory, worker


def figures(card: FakeCard | None, more: int = 0) -> dict[str, float]:
    memory, worker = held(card, more)
    return {quantity.name: quantity.value for quantity in memory.quantities(worker)}


HOST = {"resident": 300, "resident_peak": 400}


def test_what_the_driver_lists_for_the_process_counts() -> None:
    assert figures(FakeCard(1000, listed=70), more=90) == HOST | {"device_used": 70}


def test_where_it_lists_no_processes_the_card_is_fuller_by_that() -> None:
    assert figures(FakeCard(1000), more=90) == HOST | {"device_added": 90}
    assert figures(FakeCard(1000), more=-90) == HOST  # another program gave back


@pytest.mark.parametrize("card", [None, FakeCard(None)])
def test_without_a_card_or_a_word_of_the_driver_there_is_no_figure(card: FakeCard | None) -> None:
    assert figures(card) == HOST


def test_the_next_worker_is_measured_anew() -> None:
    card = FakeCard(1000)
    memory, worker = held(card, more=90)
    assert memory.has_before
    memory.forget()
    assert not memory.has_before
    card.used = 2000
    memory.read_before()
    card.used = 2050
    memory.read_ready(worker)
    assert memory.on_device(worker) == ("device_added", 50)


def test_what_was_given_back_is_taken_again_before_the_card_is_read() -> None:
    _, worker = held(FakeCard(1000))
    assert cast("FakeWorker", worker).iterations == 1
