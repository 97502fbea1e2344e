"""Tests with workers of known cost and errors whether timings on this machine can be trusted now.

`selftest` runs the real check and the real race on them: two equal workers, one that does 5% more
work, one whose output is shifted by 1, and some that cheat while they are timed. Then it runs the
equal ones again while every core is busy, as with a parent that polls.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from golow.check.reference import Standard
from golow.check.timed_results import Verifier
from golow.levels.ladder import Launch
from golow.levels.starter import Starter
from golow.measure.environment import environment
from golow.measure.race import BLOCK_SECONDS, LEAST_ROUNDS, run_race
from golow.measure.rounds import Race
from golow.observer import Observer, Silent
from golow.records.comparison import Check
from golow.records.errors import GolowError, WorkerFailure
from golow.records.record import Record
from golow.storage.scratch import scratch_folder
from golow.worker.client import Worker
from golow.worker.plant import CHEATS
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.import_path import module_command
from golow.workload.prepare import prepare
from golow.workload.request import Request

SLOWER = 0.05
SLOWER_RANGE = (1.03, 1.07)
SHIFT = 1.0
COARSEST_CLOCK_NS = 1000  # a thousandth of the shortest iteration that anyone would time
CONTENDED_MOST = 0.8  # share of the blocks on busy cores that must be marked
SIZE = 256

CALM_SHARE = 0.6  # share of the time limit; starting and checking take about ten more seconds
CHEATED_SHARE, CHEATED_SECONDS = 0.1, 8.0  # of the limit, but not fewer seconds
BURNT_SHARE = 0.15

PLANTS: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "twin": (),
    "slower": ("--slower", str(SLOWER)),
    "shifted": ("--shift", str(SHIFT)),
    **{name: ("--cheat", name) for name in CHEATS},
}


class Finding(Record, frozen=True, kw_only=True):
    """One test: what it expects, what it found, and what a failure means."""

    name: str
    expected: str
    found: str
    passed: bool
    explanation: str


class SelftestResult(Record, frozen=True, kw_only=True):
    """The findings of the selftest."""

    findings: tuple[Finding, ...]

    @property
    def trusted(self) -> bool:
        """True if every test passed."""
        return all(finding.passed for finding in self.findings)


def selftest(observer: Observer | None = None, time_limit: float = 100.0) -> SelftestResult:
    """Plant errors of known size and test whether golow finds them on this machine.

    It takes at most about ``time_limit`` plus twenty seconds. Raises `GolowError` if the workers
    cannot run at all.
    """
    observer = observer or Silent()
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        observer.stage("computing the float64 reference")
        bundle = _bundle(folder)
        standard = Standard(bundle, folder, Starter())
        observer.stage("starting workers of known cost")
        try:
            workers = {
                name: stack.enter_context(_started(name, bundle, options))
                for name, options in PLANTS.items()
            }
            checks = {
                name: standard.judge(worker.outputs).check for name, worker in workers.items()
            }
        except WorkerFailure as failure:
            raise GolowError(
                f"the workers of the selftest cannot run here: {failure.message}\n{failure.log}"
            ) from failure
        racing = [workers["plain"], workers["twin"], workers["slower"]]
        proof = standard.verifier(checks, "plain")
        calm = _race(racing, CALM_SHARE * time_limit, proof, observer)
        observer.stage("racing workers that cheat")
        cheats = [workers["plain"], *(workers[name] for name in CHEATS)]
        limit = max(CHEATED_SECONDS, CHEATED_SHARE * time_limit)
        cheated = _race(cheats, limit, proof, observer, block_seconds=0.3, least_rounds=2)
        observer.stage("racing again while every core is busy")
        with _burning_cores(environment().affinity):
            burnt = _race(racing[:2], BURNT_SHARE * time_limit, proof, observer)
    return SelftestResult(
        findings=(
            _clock(),
            _wait(calm),
            _equal(calm, checks),
            _slower(calm, checks["slower"]),
            _shifted(checks["shifted"]),
            _cheated(cheated, checks),
            _contended(burnt),
            _equal_while_burnt(burnt),
        )
    )


# ---------------------------------------------------------------- workers


def _bundle(folder: Path) -> Bundle:
    """A workload that both PyTorch and the planted workers can compute. It uses one thread:
    threads that wait for one another at the end of a product would be a second thing under
    test."""
    torch.manual_seed(0)
    module = nn.Linear(SIZE, SIZE, bias=False)
    prepared = prepare(Request(module, torch.randn(SIZE, SIZE), threads=1))
    return write_bundle(prepared, folder / "bundle")[0]


def _started(name: str, bundle: Bundle, options: tuple[str, ...]) -> Worker:
    command = module_command("golow.worker.plant", *options)
    worker = Starter().worker(name, Launch(command), bundle)
    worker.load(bundle.folder)
    return worker


def _race(
    workers: list[Worker],
    time_limit: float,
    proof: Verifier,
    observer: Observer,
    *,
    block_seconds: float = BLOCK_SECONDS,
    least_rounds: int = LEAST_ROUNDS,
) -> Race:
    """Long blocks and few rounds suit the parent's clock, which is coarse."""
    race = run_race(
        workers,
        baseline="plain",
        seed=0,
        time_limit=time_limit,
        block_seconds=block_seconds,
        least_rounds=least_rounds,
        proof=proof,
        threads=1,
        observer=observer.race,
    )
    if race.stopped_because == "interrupted":
        raise KeyboardInterrupt
    return race


@contextmanager
def _burning_cores(cores: tuple[int, ...]) -> Iterator[None]:
    """Run a busy loop on each of the cores."""
    command = module_command("golow.worker.plant", "--burn")
    settings = worker_environment(command[0], 1, {})
    with ExitStack() as stack:
        for core in cores:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=settings)
            stack.enter_context(process)
            stack.callback(process.kill)
            _pin(process.pid, core)
            if process.stdout is not None:
                process.stdout.readline()  # the loop is running
        yield


def _pin(process: int, core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process, {core})


# ---------------------------------------------------------------- findings


def _clock() -> Finding:
    reads = [time.perf_counter_ns() for _ in range(10_000)]
    steps = [after - before for before, after in pairwise(reads)]
    finest = min((step for step in steps if step > 0), default=10**9)
    return Finding(
        name="the clock",
        expected=f"steps of at most {COARSEST_CLOCK_NS} ns",
        found=f"steps of {finest} ns",
        passed=finest <= COARSEST_CLOCK_NS,
        explanation="this clock is too coarse for short iterations: time longer ones",
    )


def _wait(race: Race) -> Finding:
    blocks = [block for blocks in race.blocks.values() for block in blocks]
    readable = bool(blocks) and all(block.wait_share is not None for block in blocks)
    return Finding(
        name="waiting for a core",
        expected="readable",
        found="readable" if readable else "not readable",
        passed=readable,
        explanation="the kernel does not report how long a process waited for a core (schedstat), "
        "so golow cannot detect contended blocks: close other programs",
    )


def _equal(race: Race, checks: Mapping[str, Check]) -> Finding:
    verdicts = {checks[name].verdict for name in ("plain", "twin")}
    return Finding(
        name="two equal workers",
        expected="match; same or unclear",
        found=f"{' and '.join(sorted(verdicts))}; {_ratio_text(race, 'twin')}",
        passed=verdicts == {"match"} and _word(race, "twin") in ("same", "unclear"),
        explanation="golow finds a difference between two equal programs on this machine: do not "
        "rely on differences of this size between levels",
    )


def _slower(race: Race, checked: Check) -> Finding:
    ratio = race.ratio("slower")
    low, high = SLOWER_RANGE
    return Finding(
        name=f"a worker slower by {SLOWER:.0%}",
        expected=f"match; slower, {low} to {high}",
        found=f"{checked.verdict}; {_ratio_text(race, 'slower')}",
        passed=checked.verdict == "match"
        and ratio is not None
        and ratio.word == "slower"
        and low <= ratio.value <= high,
        explanation=f"a difference of {SLOWER:.0%} is lost in this machine's noise"
        f" ({race.contended_share('slower'):.0%} of its blocks waited for a core): close other "
        "programs, or rely only on larger differences",
    )


def _shifted(checked: Check) -> Finding:
    return Finding(
        name=f"a worker wrong by {SHIFT:g}",
        expected="differs",
        found=checked.verdict,
        passed=checked.verdict == "differs",
        explanation="the check accepts a wrong result: do not rely on any verdict of this golow",
    )


def _cheated(race: Race, checks: Mapping[str, Check]) -> Finding:
    """A worker that cheats passes the check, and has no time."""
    caught = [n for n in CHEATS if checks[n].verdict == "match" and n in race.failures]
    missed = [n for n in CHEATS if n not in caught or race.time(n) is not None]
    return Finding(
        name=f"{len(CHEATS)} workers that cheat while timed",
        expected="all refuted",
        found=_missed_text(race, missed) if missed else "all refuted",
        passed=not missed,
        explanation="golow believes a worker that does not do the work that is timed: do not rely "
        "on the times of workers that you did not write",
    )


def _missed_text(race: Race, missed: Sequence[str]) -> str:
    """On a busy machine, waiting hides a clock that runs slow."""
    contended = max(race.contended_share(name) for name in missed)
    busy = f"; {contended:.0%} of the blocks contended" if contended else ""
    return f"missed: {', '.join(missed)}{busy}"


def _contended(race: Race) -> Finding:
    share = race.summary.contended_share
    return Finding(
        name="while every core is busy",
        expected="blocks marked contended",
        found=f"{share:.0%} of the blocks marked",
        passed=share >= CONTENDED_MOST,
        explanation="golow cannot detect on this machine that its workers wait for a core: "
        "watch the load yourself",
    )


def _equal_while_burnt(race: Race) -> Finding:
    return Finding(
        name="two equal workers, cores busy",
        expected="same or unclear",
        found=_ratio_text(race, "twin"),
        passed=_word(race, "twin") in ("same", "unclear"),
        explanation="golow finds a difference between two equal programs while this machine is "
        "busy: do not measure while other programs run",
    )


def _word(race: Race, name: str) -> str:
    ratio = race.ratio(name)
    # Too few rounds for a ratio make no claim, but a worker that failed proves nothing.
    return "failed" if race.failures else ratio.word if ratio else "unclear"


def _ratio_text(race: Race, name: str) -> str:
    ratio = race.ratio(name)
    if ratio is None:
        return "; ".join(failure.message for failure in race.failures.values()) or "no ratio"
    return f"{ratio.word}, {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
