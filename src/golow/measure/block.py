"""One block of a race: untimed, then timed iterations of one worker, as clean as possible.

A block is clean if only the level determined its time: no other program took its cores, and neither
heat nor power lowered the GPU's clocks. A disturbed block is timed again while the limits allow it;
after that it is kept and marked. Blocks are chosen by their disturbance, never by their time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import NamedTuple, Protocol

from golow.measure.gpu.nvml import Card, is_slowed
from golow.records.comparison import Block, GpuState, Quantity, Sample
from golow.records.errors import WorkerFailure
from golow.worker.protocol import Challenge

CONTENDED_SHARE = 0.01
"""A block is contended if its threads waited for a core for more than this share of its time. An
idle machine shows a tenth of it; one other busy process on the core shows fifty times it."""

MOST_ATTEMPTS = 3
"""Attempts at a disturbed block in total. What lasts longer than three blocks is not a spike."""

RETRY_SHARE = 1 / 3
"""The largest share of the race's time for repeating disturbed blocks: a machine that is never idle
still gets its rounds."""

WARMUP_SHARE = 0.2
"""Untimed iterations at the start of a block, as a share of the timed ones; at least one. They
restore the caches and the clock that the worker lost while the others ran."""

HOST_BOUND_SHARE = 0.8
"""A level whose host needs at least this share of the device's time to enqueue an iteration is
host-bound: what delays the host then delays the device, whose events include the gaps."""


ENQUEUED, ENQUEUE_PROBES = 3, 5
"""Iterations per attempt, and attempts, for timing how the host enqueues."""


class Worker(Protocol):
    """Interface of a worker that a race needs."""

    @property
    def name(self) -> str:
        """The level's name, unique in the race."""

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        """Run ``warmup`` untimed, then ``iterations`` timed iterations; blocks until they are done.

        cold: the device's L2 is emptied before each timed one. challenge: the sample then has the
        result of every iteration. within: seconds after which `OutOfTime` is raised. Raises
        WorkerFailure if the worker died, hung, ran out of memory or broke the protocol.
        """


Committed = tuple[tuple[float, ...], ...]
"""The results of all iterations of a block, of each attempt at it."""


Challenger = Callable[[int], Challenge | None]
"""The challenge for an attempt, from 0."""

Patience = Callable[[], float]
"""Seconds that a block may take if it begins now."""


def challenge_nobody(attempt: int) -> Challenge | None:
    """No challenge."""
    return None


class Setting(NamedTuple):
    """How blocks are timed. card: the GPU on which the workers run, None on a CPU. cold: the GPU's
    L2 is emptied before each iteration. weights: bytes that a worker writes if it is told to go
    back to the bundle's weights. threads: that a worker may use; None if it does not matter."""

    card: Card | None = None
    cold: bool = False
    weights: int = 0
    threads: int | None = None


ON_CPU = Setting()


class Attempt(NamedTuple):
    """The result of one attempt at a block. state: the GPU's, right after it. number: from 0."""

    sample: Sample
    state: GpuState | None = None
    number: int = 0

    @property
    def contended(self) -> bool:
        """True if waiting for a core distorted the time. On a device it does not while the host is
        far enough ahead."""
        if self.sample.device_ns and not _waits_for_host(self.sample):
            return False
        return _wait_share(self.sample) > CONTENDED_SHARE

    @property
    def throttled(self) -> bool:
        """True if heat or power slowed the GPU down meanwhile."""
        return is_slowed(self.state)

    @property
    def disturbance(self) -> tuple[bool, bool, float]:
        """Less is better. Contention comes first: nothing else distorts a time as much."""
        return self.contended, self.throttled, _wait_share(self.sample)


class Retries:
    """Decides whether a disturbed block may be timed again."""

    def __init__(self, clock: Callable[[], float], started: float, deadline: float) -> None:
        self._clock, self._started, self._deadline = clock, started, deadline
        self._spent = self._last = 0.0

    def allowed(self) -> bool:
        """True if there is time for one more attempt that takes as long as the last one."""
        now = self._clock()
        in_time = now + self._last < self._deadline
        return in_time and self._spent <= RETRY_SHARE * (now - self._started)

    def run(self, attempt: Callable[[], Attempt], again: bool) -> Attempt:
        """The attempt's result. again: it is a repetition, whose time is counted."""
        began = self._clock()
        try:
            return attempt()
        finally:
            self._last = self._clock() - began
            self._spent += self._last if again else 0.0


def clean_block(
    worker: Worker,
    iterations: int,
    retries: Retries,
    setting: Setting,
    number: int,
    position: int,
    challenger: Challenger = challenge_nobody,
    patience: Patience | None = None,
) -> tuple[Block, Committed]:
    """The first clean block, or else the least disturbed one, with the results of all; number and
    position of its round. Raises `OutOfTime` if an attempt takes longer than it may."""
    attempts = 0
    resets: list[bool] = []
    results: list[tuple[float, ...]] = []

    def attempt() -> Attempt:
        challenge = challenger(attempts)
        resets.append(challenge is not None and challenge.reset)
        within = None if patience is None else patience()
        found = _attempt(worker, iterations, setting, attempts, challenge, within)
        results.append(found.sample.results)
        return found

    best, attempts = retries.run(attempt, again=False), 1
    while (best.contended or best.throttled) and attempts < MOST_ATTEMPTS and retries.allowed():
        repeated = retries.run(attempt, again=True)
        best = min(best, repeated, key=lambda tried: tried.disturbance)
        attempts += 1
    block = Block(
        round=number,
        position=position,
        host_ns=best.sample.host_ns,
        device_ns=best.sample.device_ns,
        wait_share=best.sample.wait_share,
        contended=best.contended,
        attempts=attempts,
        wall_ns=best.sample.wall_ns,
        busy_ns=best.sample.busy_ns,
        rank_ns=best.sample.rank_ns,
        wrote=setting.weights if resets[best.number] else 0,
        gpu=best.state,
        throttled=best.throttled,
    )
    return block, tuple(results)


def time_block(
    worker: Worker,
    iterations: int,
    warmup: int,
    setting: Setting,
    challenge: Challenge | None = None,
    within: float | None = None,
) -> Sample:
    """The worker's answer; raises WorkerFailure if it does not fit the request."""
    sample = worker.time(iterations, warmup, setting.cold, challenge, within)
    counts = {len(sample.host_ns), len(sample.device_ns) or iterations}
    if counts != {iterations}:
        got = f"{len(sample.host_ns)} host and {len(sample.device_ns)} device times"
        raise WorkerFailure(
            "protocol", f"the request was for {iterations} iterations, the answer has {got}"
        )
    if min(*sample.host_ns, *sample.device_ns, 0) < 0:
        raise WorkerFailure("protocol", "the answer has an iteration of negative time")
    if setting.card is not None and not sample.device_ns:
        # Its host only enqueues: comparing that with device times would use two clocks.
        raise WorkerFailure("protocol", "the answer has no device_ns, which timing on a GPU needs")
    if setting.card is None and sample.device_ns:
        # The clocks would be judged by one of the two figures, and the other one quoted.
        raise WorkerFailure("protocol", "it has device_ns, but the workload does not run on a GPU")
    return sample


def warmup_iterations(iterations: int) -> int:
    """Untimed iterations at the start of a block with that many timed ones."""
    return max(1, math.ceil(WARMUP_SHARE * iterations))


def enqueue(worker: Worker) -> Quantity:
    """Seconds that the host needs to enqueue an iteration: the fastest of a few.

    It is timed in small groups on an idle device: in a block the host may wait for room in the
    launch queue, and its time then equals the device's.
    Raises WorkerFailure as ``worker.time`` does.
    """
    samples = (worker.time(ENQUEUED, 0) for _ in range(ENQUEUE_PROBES))
    fastest = min(ns for sample in samples for ns in sample.host_ns)
    return Quantity(name="enqueue", unit="s", value=fastest / 1e9)


def is_host_bound(enqueue: float, device: float) -> bool:
    """True if the device waits for the host; both times in the same unit."""
    return enqueue >= HOST_BOUND_SHARE * device


def _attempt(
    worker: Worker,
    iterations: int,
    setting: Setting,
    number: int,
    challenge: Challenge | None,
    within: float | None,
) -> Attempt:
    card, warmup = setting.card, warmup_iterations(iterations)
    if card is None:
        sample = time_block(worker, iterations, warmup, setting, challenge, within)
        return Attempt(sample, number=number)
    before = card.mark()
    sample = time_block(worker, iterations, warmup, setting, challenge, within)
    return Attempt(sample, card.state(before), number)


def _waits_for_host(sample: Sample) -> bool:
    """Errs towards yes: all may have waited for the launch queue; then the block is timed again."""
    return is_host_bound(min(sample.host_ns), median(sample.device_ns))


def _wait_share(sample: Sample) -> float:
    """0 if the system does not report it: such a block cannot be called contended."""
    return sample.wait_share or 0.0
