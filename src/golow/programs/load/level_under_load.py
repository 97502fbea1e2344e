"""One level under load: its process, and the runs of LoadGen against it."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple, Self

import msgspec
import numpy as np

from golow.measure.gpu.joules import POWERCAP, Joules
from golow.measure.gpu.nvml import Card
from golow.programs.load import generator, loadgen_logs, served_level, verdict
from golow.programs.load.cores import Cores
from golow.programs.load.early_stopping import needed
from golow.programs.load.generator import GeneratorReport, GeneratorRequest
from golow.programs.load.lengths import Lengths
from golow.programs.load.load_record import LoadPlan, LoadRun, Scenario, ServedBatch
from golow.programs.load.served_level import Served
from golow.records.comparison import Quantity
from golow.records.errors import WorkerFailure
from golow.worker.conversation import Conversation
from golow.worker.time_limits import Limits
from golow.workload.bundle import Bundle
from golow.workload.generation.text_bundle import TextBundle

NO_LIMIT = 3600.0  # seconds: a latency that every run holds, and time enough for every sample
LONGER = 6.0  # times its length, until which a run continues for more requests
BACKLOG, USUAL = 10.0, 0.1  # requests of this many latencies may wait, each of as many seconds
LEAST_WAITING, MOST_WAITING = 64, 100_000
MOST_REQUESTS = 1e6  # of a run: LoadGen draws them in advance, 310 bytes each
CHECKED = 32  # answers of a run that golow's rule judges
SHORTEST_ENERGY = 1.4  # seconds; the driver of a GPU counts ten times a second

Answers = list[tuple[int, bytes]]


class Place(NamedTuple):
    """Data that all levels of a load test share. lengths: of the samples, if they differ. command:
    of a level's process; environment: variables of it. powercap: where the system's counters of
    energy are."""

    bundle: Bundle | TextBundle
    folder: Path
    plan: LoadPlan
    cores: Cores
    samples: int
    cache: Path
    limits: Limits
    card: Card | None = None
    lengths: Lengths | None = None
    command: Sequence[str] = served_level.COMMAND
    powercap: Path = POWERCAP
    environment: Mapping[str, str] | None = None


class Run(NamedTuple):
    """One run of LoadGen. rate: requests per second, or expected samples per second. accuracy:
    every sample once."""

    scenario: Scenario
    rate: float
    seconds: float = 0.0
    round: int = 0
    accuracy: bool = False

    @property
    def asked_rate(self) -> float | None:
        """The rate for the record."""
        return self.rate if self.scenario == "server" else None


class LevelUnderLoad:
    """A level's process; leaving the ``with`` block ends it.

    build: seconds until it was ready. Raises `WorkerFailure`, or `Unsupported`, for a level that
    cannot run or fails under load; its process has ended then.
    """

    numbers = itertools.count()

    def __init__(self, name: str, place: Place, contexts: int = 1) -> None:
        self.name, self.place, self._contexts = name, place, contexts
        self.build: float | None = None
        self.resident = self.resident_peak = 0
        self._socket = place.folder / f"s{next(self.numbers)}"
        self._served = Conversation(
            name,
            place.command,
            threads=place.bundle.workload.threads,
            affinity=place.cores.level,
            environment=place.environment,
            limits=place.limits,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._served.close()

    @property
    def pid(self) -> int:
        """Process id of the level."""
        return self._served.pid

    def kill(self) -> None:
        """Kill its process, from any thread; what waits for it fails."""
        self._served.kill()

    def load(self) -> None:
        """Build the level for all buckets, and warm it up."""
        began = time.monotonic()
        plan = self.place.plan
        request = {
            "do": "load",
            "bundle": str(self.place.bundle.folder),
            "level": self.name,
            "socket": str(self._socket),
            "buckets": plan.buckets,
            "lengths": msgspec.to_builtins(self.place.lengths),
            "contexts": self._contexts,
            "most": plan.most,
            "delay": plan.delay,
            "cache": str(self.place.cache),
        }
        self._served.ask(request, self.place.limits.load)
        self.build = time.monotonic() - began

    def run(self, asked: Run) -> tuple[LoadRun, Answers]:
        """Run LoadGen once; returns the run, and the answers to check."""
        self._served.ask({"do": "begin"}, self._soon)
        folder = self.place.folder / f"run{next(self.numbers)}"
        folder.mkdir()
        energy = Joules(self.place.card, self.place.powercap)
        report = self._generated(asked, folder)
        joules = [item.value for item in energy.spent()]
        if report.ending == "silent":
            raise self._served.fail(
                "hung",
                f"it gave no answer for {self.place.plan.patience:g} s while {report.waiting} "
                f"requests waited, after {report.answered} answers",
            )
        served = self._left(folder)
        if report.ending == "died":
            raise self._served.fail("failed", "it closed the connection under load")
        if report.ending == "late":
            reason = (
                f"{report.waiting} requests still waited {report.seconds:.0f} s after the start"
            )
            return self._overloaded(asked, report, served, reason), []
        found = self._found(asked, folder, served)
        if joules and found.answered and found.seconds > SHORTEST_ENERGY:
            found = msgspec.structs.replace(found, joules=sum(joules) / found.answered)
        answers = loadgen_logs.answers(folder)
        shutil.rmtree(folder)  # a trace may be large
        return msgspec.structs.replace(found, checked=len(answers)), answers

    def memory(self) -> tuple[Quantity, ...]:
        """Bytes of its process: before the load, and the maximum under it."""
        sizes = {"resident": self.resident, "resident_peak": self.resident_peak}
        return tuple(Quantity(name=n, unit="B", value=size) for n, size in sizes.items() if size)

    # ------------------------------------------------------------ implementation

    @property
    def _soon(self) -> float:
        """Seconds within which it answers between runs, when at most one batch is under way."""
        return max(self.place.plan.patience, self.place.limits.block)

    def _generated(self, asked: Run, folder: Path) -> GeneratorReport:
        request = self._request(asked, folder)
        limit = request.longest + request.drain + 2 * request.patience
        limit += self.place.limits.block  # for its start and LoadGen's logs
        message = {"do": "run", **msgspec.to_builtins(request)}
        try:
            with Conversation(
                "LoadGen",
                generator.COMMAND,
                threads=1,
                affinity=self.place.cores.generator,
                limits=self.place.limits,
            ) as process:
                return process.convert(process.ask(message, limit), GeneratorReport)
        except WorkerFailure as failure:
            raise WorkerFailure(
                failure.kind, f"LoadGen's process: {failure.message}", failure.log
            ) from failure

    def _request(self, asked: Run, folder: Path) -> GeneratorRequest:
        plan = self.place.plan
        server, limits = asked.scenario == "server", plan.limits
        least = needed(plan.percentile) if server and limits and not asked.accuracy else 1
        longest = NO_LIMIT if asked.accuracy else max(LONGER * asked.seconds, 1.0)
        backlog = min(MOST_WAITING, int(asked.rate * BACKLOG * (plan.allowed or USUAL)))
        return GeneratorRequest(
            socket=str(self._socket),
            folder=str(folder),
            scenario=asked.scenario,
            accuracy=asked.accuracy,
            samples=self.place.samples,
            rate=asked.rate,
            latency=limits.get("latency", NO_LIMIT),
            percentile=plan.percentile,
            streams=plan.streams,
            seconds=min(asked.seconds, MOST_REQUESTS / asked.rate),
            least=least,
            longest=longest,
            most_waiting=max(LEAST_WAITING, 4 * plan.most, backlog) if server else 0,
            checked=CHECKED,
            seed=(plan.seed + asked.round) % 2**64,
            patience=plan.patience,
            drain=max(plan.patience, longest),
            texts=plan.texts is not None,
            ttft=limits.get("ttft", NO_LIMIT),
            tpot=limits.get("tpot", NO_LIMIT),
        )

    def _left(self, folder: Path) -> Served:
        """Results that the run left in the level's process."""
        file = folder / "served.json"
        self._served.ask({"do": "served", "file": str(file)}, self._soon)
        found = msgspec.json.decode(file.read_bytes(), type=Served)
        self.resident = self.resident or found.resident
        self.resident_peak = max(self.resident_peak, found.resident_peak)
        return found

    def _overloaded(
        self, asked: Run, report: GeneratorReport, served: Served, reason: str
    ) -> LoadRun:
        return LoadRun(
            scenario=asked.scenario,
            rate=asked.asked_rate,
            round=asked.round,
            outcome="overload",
            reason=reason,
            answered=report.answered,
            dropped=report.waiting,
            seconds=report.seconds,
            batches=_from_first(served),
        )

    def _found(self, asked: Run, folder: Path, served: Served) -> LoadRun:
        plan = self.place.plan
        said, measured = loadgen_logs.said(folder), loadgen_logs.measured(folder)
        parts, answered = _parts(measured.latencies, served), len(measured.latencies)
        if asked.scenario == "multi-stream":
            measured = measured.by_group()
        found = LoadRun(
            scenario=asked.scenario,
            rate=asked.asked_rate,
            round=asked.round,
            answered=answered,
            seconds=loadgen_logs.seconds_of(measured),
            arrivals=measured.arrivals,
            latencies=measured.latencies,
            batches=_from_first(served),
            late=float(np.percentile(measured.late, 99)) / 1e9 if measured.late else None,
            valid=said.valid,
            early_stopping=said.early_stopping,
            waiting=_middle(wait for wait, _ in parts),
            overhead=_middle(rest for _, rest in parts),
            first_tokens=measured.first_tokens,
            tokens=plan.texts.tokens if plan.texts is not None else 0,
        )
        kind, reason = verdict.outcome_of(said, found, plan)
        return msgspec.structs.replace(found, outcome=kind, reason=reason)


def _from_first(served: Served) -> tuple[ServedBatch, ...]:
    """The batches, with times after the first."""
    first = min((one.closed for one in served.batches), default=0)
    return tuple(msgspec.structs.replace(one, closed=one.closed - first) for one in served.batches)


def _parts(latencies: Sequence[int], served: Served) -> list[tuple[int, int]]:
    """Time of each request in nanoseconds: in the queue, and outside both the queue and the
    level."""
    rows = zip(latencies, served.waits, served.runs, strict=False)
    return [(wait, latency - wait - run) for latency, wait, run in rows if run >= 0]


def _middle(nanoseconds: Iterable[int]) -> float | None:
    """The median in seconds; None of nothing."""
    known = list(nanoseconds)
    return median(known) / 1e9 if known else None
