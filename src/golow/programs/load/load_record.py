"""The record of a load test: the settings, every run of the load generator with each request's
latency, and the conclusions."""

from __future__ import annotations

from typing import Literal

from golow.records.comparison import Check, Environment, Quantity, Ratio
from golow.records.record import Record
from golow.records.workload import Workload

FORMAT_VERSION = 1

Scenario = Literal["single-stream", "multi-stream", "server", "offline"]
"""Arrivals, as LoadGen defines them: the next request after the answer to the one before; the same
with several samples in a request; at random moments, whatever the level does (open loop); all at
once."""

Outcome = Literal["held", "over", "unclear", "overload", "failed", "measured"]
"""Outcome of a run. ``held``: LoadGen's early stopping is met, so the percentile is within the
latency. ``over``: it is not, with the same confidence. ``unclear``: too few requests to tell.
``overload``: requests came faster than answers, until the run was ended. ``failed``: an answer is
wrong or missing, or the level's process ended. ``measured``: the run had no latency to hold."""


Timed = Literal["latency", "ttft", "tpot"]
"""Times of a request: until the whole answer; of a text, until its first token, and the mean of the
tokens behind that one (MLPerf's time to first token, and time per output token)."""


class TextPlan(Record, frozen=True, kw_only=True):
    """The texts that requests ask for.

    prompt: tokens of the shortest prompt and of the longest. tokens: that each request generates.
    ttft, tpot: limits in seconds; None without one.
    """

    prompt: tuple[int, int]
    tokens: int
    ttft: float | None = None
    tpot: float | None = None


class LoadPlan(Record, frozen=True, kw_only=True):
    """Settings of a load test.

    latency: the limit in seconds; None without one. percentile: the share of requests that must
    meet it. rates: requests per second of the server scenario; without any, the highest rate that
    meets the limit is searched. most: largest number of samples in a batch. delay: longest time in
    seconds that a request waits for others. buckets: the batch sizes that levels are compiled for.
    lengths: tokens of the shortest sample and of the longest; None if all samples have one size.
    length_buckets: the lengths that levels are compiled for. contexts: batches that run at a time;
    each level is loaded with each of these. seconds: of a run. repeats: rounds of runs in turn
    between levels. patience: seconds without an answer after which a run is abandoned. url: of a
    service that is tested too, as the level ``http``. seed: of arrivals and of the order of
    samples, the same for all levels. texts: of a model that generates; None if samples are computed
    at once.
    """

    scenarios: tuple[Scenario, ...]
    latency: float | None = None
    percentile: float = 0.99
    rates: tuple[float, ...] = ()
    most: int = 8
    delay: float = 0.002
    buckets: tuple[int, ...] = (1, 2, 4, 8)
    lengths: tuple[int, int] | None = None
    length_buckets: tuple[int, ...] = ()
    contexts: tuple[int, ...] = (1,)
    streams: int = 8
    seconds: float = 5.0
    repeats: int = 3
    patience: float = 10.0
    url: str = ""
    seed: int = 0
    texts: TextPlan | None = None

    @property
    def timed(self) -> tuple[Timed, ...]:
        """The times that a limit may hold for."""
        return ("latency",) if self.texts is None else ("ttft", "tpot")

    @property
    def limits(self) -> dict[Timed, float]:
        """The limits that must be held, in seconds; empty without one."""
        texts = self.texts
        given: dict[Timed, float | None] = (
            {"latency": self.latency} if texts is None else {"ttft": texts.ttft, "tpot": texts.tpot}
        )
        return {timed: limit for timed, limit in given.items() if limit is not None}

    @property
    def allowed(self) -> float | None:
        """Seconds that a whole answer may take within the limits; None without one."""
        if not self.limits:
            return None
        if self.texts is None:
            return self.latency
        behind = self.texts.tokens - 1
        return self.limits.get("ttft", 0.0) + behind * self.limits.get("tpot", 0.0)


class ServedBatch(Record, frozen=True, kw_only=True, array_like=True):
    """One batch of a run, in nanoseconds.

    closed: from the run's first batch until this one was closed. size: samples. bucket: the batch
    size that ran. left: requests that stayed in the queue. waited: of its first request, in the
    queue. assembling: copying the samples into the batch, with padding. running: the level.
    answering: splitting the answers and sending them. length: tokens that each row ran with; 1 if
    samples have one size. tokens: of the samples themselves, without padding; one each if they have
    one size.
    """

    closed: int
    size: int
    bucket: int
    left: int
    waited: int
    assembling: int
    running: int
    answering: int
    length: int
    tokens: int

    @property
    def ran(self) -> int:
        """Tokens that the level ran, with padding."""
        return self.bucket * self.length


class LoadRun(Record, frozen=True, kw_only=True):
    """One run of LoadGen at a level.

    rate: scheduled requests per second; None outside the server scenario. round: the turn in which
    it ran; 0 while a rate is searched. answered: samples with an answer. seconds: from the first
    arrival to the last answer. arrivals, latencies: of each request, in nanoseconds, from LoadGen's
    schedule to its receipt of the answer. late: 99th percentile of the seconds by which the
    generator itself was late. overhead: median seconds of a request outside the queue and the
    level: transport, assembling, answering. waiting: median seconds in the queue. checked: answers
    checked by golow's rule. dropped: requests without an answer. valid, early_stopping: LoadGen's
    own words. joules: for a request. first_tokens: nanoseconds from the schedule of each request to
    the first token of its text. tokens: of each text.
    """

    scenario: Scenario
    rate: float | None = None
    round: int = 0
    outcome: Outcome = "measured"
    reason: str = ""
    answered: int = 0
    seconds: float = 0.0
    arrivals: tuple[int, ...] = ()
    latencies: tuple[int, ...] = ()
    batches: tuple[ServedBatch, ...] = ()
    late: float | None = None
    overhead: float | None = None
    waiting: float | None = None
    checked: int = 0
    dropped: int = 0
    valid: bool = False
    early_stopping: str = ""
    joules: float | None = None
    first_tokens: tuple[int, ...] = ()
    tokens: int = 0

    @property
    def throughput(self) -> float | None:
        """Samples per second; None without an answer."""
        return self.answered / self.seconds if self.answered and self.seconds > 0 else None

    def times(self, timed: Timed) -> tuple[int, ...]:
        """One of the times of each request, in nanoseconds; none of a text where LoadGen does not
        report its first token."""
        if timed == "latency":
            return self.latencies
        if timed == "ttft":
            return self.first_tokens
        both, behind = zip(self.latencies, self.first_tokens, strict=False), self.tokens - 1
        return tuple((whole - first) // behind for whole, first in both)


class Peak(Record, frozen=True, kw_only=True):
    """The highest rate at which a level meets the latency limit.

    rate: requests per second, the median over the rounds, with its interval; None if none was
    found. rounds: the rate of each round. ratio: to the first level's, by rounds. reason: why there
    is none.
    """

    rate: Quantity | None = None
    rounds: tuple[float, ...] = ()
    ratio: Ratio | None = None
    reason: str = ""


class LevelLoad(Record, frozen=True, kw_only=True):
    """One level under load.

    contexts: batches that run at a time. check: of all answers of LoadGen's accuracy mode, by
    golow's rule. cores: that its process may run on. build: seconds until it was ready. memory:
    bytes; ``resident`` after its first run, ``resident_peak`` under it. log: last lines of its
    process if that failed.
    """

    level: str
    contexts: int = 1
    check: Check
    runs: tuple[LoadRun, ...] = ()
    peak: Peak | None = None
    cores: tuple[int, ...] = ()
    build: float | None = None
    memory: tuple[Quantity, ...] = ()
    notes: tuple[str, ...] = ()
    log: str = ""

    @property
    def label(self) -> str:
        """Its name, with the number of its contexts: ``onednn x2``."""
        return self.level if self.contexts == 1 else f"{self.level} x{self.contexts}"

    @property
    def failed(self) -> bool:
        """True if it is wrong, or failed under load."""
        bad = any(run.outcome == "failed" for run in self.runs)
        return bad or self.check.verdict in ("differs", "failed")

    def of(self, scenario: Scenario, rate: float | None = None) -> list[LoadRun]:
        """Its runs in turn of this scenario, at this rate."""
        return [r for r in self.runs if (r.scenario, r.rate) == (scenario, rate) and r.round]


class LoadTest(Record, frozen=True, kw_only=True):
    """Levels under load.

    workload: of texts, a step that reads the longest prompt. generator_cores: of LoadGen's process.
    shared: whether it shares them with the levels. samples: how many differ. energy_missing: why no
    energy was measured. interrupted: by Ctrl-C; the record has the partial results."""

    format_version: int = FORMAT_VERSION
    id: str
    created: str
    workload: Workload
    environment: Environment
    plan: LoadPlan
    levels: tuple[LevelLoad, ...]
    samples: int
    generator: str = ""
    generator_cores: tuple[int, ...] = ()
    shared: bool = False
    energy_missing: str = ""
    notes: tuple[str, ...] = ()
    interrupted: bool = False
