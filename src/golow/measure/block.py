"""One block of a race: untimed, then timed iterations of one worker, as undisturbed as possible.

A block is clean if nothing but the level made its time: no other program took its cores, and
neither heat nor power held the card's clocks down. One that is not is timed again while the limits
allow it, and kept and marked when they end. Blocks are chosen by what disturbed them, never by
their time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import NamedTuple, Protocol

from golow.measure.nvml import Card, is_slowed
from golow.record import Block, GpuState, Quantity, Sample, WorkerFailure

CONTENDED_SHARE = 0.01
"""A block whose threads waited for a core longer than this share of it is contended. A calm
machine shows a tenth of it; one other busy process on the core shows fifty times it."""

MOST_ATTEMPTS = 3
"""Times that a disturbed block is timed in all. What lasts longer than three blocks is no blip."""

RETRY_SHARE = 1 / 3
"""Most of the race's time that may go into timing disturbed blocks again: a machine that is never
calm still gets its rounds."""

WARMUP_SHARE = 0.2
"""Untimed iterations at the start of a block, over the timed ones; at least one. They bring back
the caches and the clock that the worker lost while the others ran."""

HOST_BOUND_SHARE = 0.8
"""A level whose host needs at least this share of the device's time to enqueue an iteration is
bound by the host: what delays the host then delays the device, whose events include the gaps."""


ENQUEUED, ENQUEUE_PROBES = 3, 5
"""Iterations at a time, and times, that the host is seen to enqueue."""


class Worker(Protocol):
    """What a race needs of a worker."""

    @property
    def name(self) -> str:
        """The level's name, unique in the race."""

    def time(self, iterations: int, warmup: int, cold: bool = False) -> Sample:
        """Run ``warmup`` untimed, then ``iterations`` timed iterations; blocks until they are done.

        cold: the device's L2 is emptied before each timed one. Raises WorkerFailure if the worker
        died, hung, ran out of memory or broke the protocol.
        """


class Setting(NamedTuple):
    """How blocks are timed. card: on which card the workers run, None on a CPU. cold: with the
    card's L2 emptied before each iteration."""

    card: Card | None = None
    cold: bool = False


ON_CPU = Setting()


class Attempt(NamedTuple):
    """What one try at a block brought. state: of the card, right after it."""

    sample: Sample
    state: GpuState | None = None

    @property
    def contended(self) -> bool:
        """Whether waiting for a core bent the time. On a device it does not while the host is far
        enough ahead."""
        if self.sample.device_ns and not _waits_for_host(self.sample):
            return False
        return _wait_share(self.sample) > CONTENDED_SHARE

    @property
    def throttled(self) -> bool:
        """Whether heat or power slowed the card down meanwhile."""
        return is_slowed(self.state)

    @property
    def disturbance(self) -> tuple[bool, bool, float]:
        """The less, the better. Contention comes first: nothing else bends a time so far."""
        return self.contended, self.throttled, _wait_share(self.sample)


class Retries:
    """Says whether the limits allow a disturbed block to be timed again."""

    def __init__(self, clock: Callable[[], float], started: float, deadline: float) -> None:
        self._clock, self._started, self._deadline = clock, started, deadline
        self._spent = 0.0

    def allowed(self) -> bool:
        """Whether there is time for one more attempt."""
        now = self._clock()
        return now < self._deadline and self._spent <= RETRY_SHARE * (now - self._started)

    def spend(self, attempt: Callable[[], Attempt]) -> Attempt:
        """What the attempt brings; its time is counted."""
        began = self._clock()
        try:
            return attempt()
        finally:
            self._spent += self._clock() - began


def clean_block(
    worker: Worker,
    iterations: int,
    retries: Retries,
    setting: Setting,
    number: int,
    position: int,
) -> Block:
    """The first clean block, or the least disturbed one; number and position of its round."""

    def attempt() -> Attempt:
        return _attempt(worker, iterations, setting)

    best, attempts = attempt(), 1
    while (best.contended or best.throttled) and attempts < MOST_ATTEMPTS and retries.allowed():
        best = min(best, retries.spend(attempt), key=lambda tried: tried.disturbance)
        attempts += 1
    return Block(
        round=number,
        position=position,
        host_ns=best.sample.host_ns,
        device_ns=best.sample.device_ns,
        wait_share=best.sample.wait_share,
        contended=best.contended,
        attempts=attempts,
        gpu=best.state,
        throttled=best.throttled,
    )


def time_block(worker: Worker, iterations: int, warmup: int, setting: Setting) -> Sample:
    """What the worker answers, or WorkerFailure if it is not what was asked for."""
    sample = worker.time(iterations, warmup, cold=setting.cold)
    counts = {len(sample.host_ns), len(sample.device_ns) or iterations}
    if counts != {iterations}:
        got = f"{len(sample.host_ns)} host and {len(sample.device_ns)} device times"
        raise WorkerFailure("protocol", f"asked to time {iterations} iterations, answered {got}")
    if min(*sample.host_ns, *sample.device_ns, 0) < 0:
        raise WorkerFailure("protocol", "answered an iteration of negative time")
    if setting.card is not None and not sample.device_ns:
        # Its host only enqueues: that time beside the others' device times would be two clocks.
        raise WorkerFailure("protocol", "answered no device_ns, by which a GPU is timed")
    return sample


def warmup_iterations(iterations: int) -> int:
    """Untimed iterations at the start of a block of so many timed ones."""
    return max(1, math.ceil(WARMUP_SHARE * iterations))


def enqueue(worker: Worker) -> Quantity:
    """Seconds that the host needs to enqueue an iteration: the fastest of a few.

    They are asked for by the handful and without others before them, onto an idle device: in a
    block the host may wait for room in the launch queue, and then repeats the device's time.
    Raises WorkerFailure as ``worker.time`` does.
    """
    samples = (worker.time(ENQUEUED, 0) for _ in range(ENQUEUE_PROBES))
    fastest = min(ns for sample in samples for ns in sample.host_ns)
    return Quantity(name="enqueue", unit="s", value=fastest / 1e9)


def is_host_bound(enqueue: float, device: float) -> bool:
    """Whether the device waits for the host; both times in the same unit."""
    return enqueue >= HOST_BOUND_SHARE * device


def _attempt(worker: Worker, iterations: int, setting: Setting) -> Attempt:
    card, warmup = setting.card, warmup_iterations(iterations)
    if card is None:
        return Attempt(time_block(worker, iterations, warmup, setting))
    before = card.mark()
    sample = time_block(worker, iterations, warmup, setting)
    return Attempt(sample, card.state(before))


def _waits_for_host(sample: Sample) -> bool:
    """Rather yes than no: all may have waited for the launch queue, and then it is timed again."""
    return is_host_bound(min(sample.host_ns), median(sample.device_ns))


def _wait_share(sample: Sample) -> float:
    """0 where the system does not tell: such a block cannot be called contended."""
    return sample.wait_share or 0.0
