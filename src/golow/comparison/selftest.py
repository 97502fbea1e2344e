"""Can numbers taken on this machine now be trusted? Workers of known cost and faults say so.

`selftest` runs the real check and the real race over them: two equal workers, one that does 5%
more work, one whose output is shifted by 1, and then the equal ones again while every core is
burnt, as a parent that polls would burn them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from golow.check.standard import Standard
from golow.levels.ladder import Launch
from golow.levels.starter import Starter
from golow.measure.environment import environment
from golow.measure.race import Race, run_race
from golow.observer import Observer, Silent
from golow.record import Check, GolowError, Record, WorkerFailure
from golow.worker.client import Worker
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request

SLOWER = 0.05
SLOWER_RANGE = (1.03, 1.07)
SHIFT = 1.0
COARSEST_CLOCK_NS = 1000  # a thousandth of the shortest iteration that anyone would time
CONTENDED_MOST = 0.8  # of the blocks beside a burnt core that must be marked
SIZE = 256

CALM_SHARE = 0.65  # of the time limit; starting and checking take about ten seconds more
BURNT_SHARE = 0.15

PLANTS: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "twin": (),
    "slower": ("--slower", str(SLOWER)),
    "shifted": ("--shift", str(SHIFT)),
}


class Finding(Record, frozen=True, kw_only=True):
    """What was planted, what should come of it, what came, and what it means if it did not."""

    name: str
    expected: str
    found: str
    passed: bool
    explanation: str


class SelftestResult(Record, frozen=True, kw_only=True):
    """What the selftest found."""

    findings: tuple[Finding, ...]

    @property
    def trusted(self) -> bool:
        """Whether every finding is as it should be."""
        return all(finding.passed for finding in self.findings)


def selftest(observer: Observer | None = None, time_limit: float = 100.0) -> SelftestResult:
    """Plant errors of known size, and see whether golow finds them here.

    It takes at most about ``time_limit`` seconds and twenty more. Raises `GolowError` where the
    workers cannot run at all.
    """
    observer = observer or Silent()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="golow-selftest-")))
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
                f"the selftest's own workers cannot run here: {failure.message}\n{failure.log}"
            ) from failure
        racing = [workers["plain"], workers["twin"], workers["slower"]]
        calm = _race(racing, CALM_SHARE * time_limit, observer)
        observer.stage("racing again while every core is burnt")
        with _burning_cores(environment().affinity):
            burnt = _race(racing[:2], BURNT_SHARE * time_limit, observer)
    return SelftestResult(
        findings=(
            _clock(),
            _wait(calm),
            _equal(calm, checks),
            _slower(calm, checks["slower"]),
            _shifted(checks["shifted"]),
            _contended(burnt),
            _equal_while_burnt(burnt),
        )
    )


# ---------------------------------------------------------------- what is planted


def _bundle(folder: Path) -> Bundle:
    """A workload that PyTorch and the plants can both compute. One thread: threads that wait for
    one another at the end of a product would be a second thing under test."""
    torch.manual_seed(0)
    module = nn.Linear(SIZE, SIZE, bias=False)
    prepared = prepare(Request(module, torch.randn(SIZE, SIZE), threads=1))
    return write_bundle(prepared, folder / "bundle")[0]


def _started(name: str, bundle: Bundle, options: tuple[str, ...]) -> Worker:
    command = (sys.executable, "-m", "golow.worker.plant", *options)
    worker = Starter().worker(name, Launch(command), bundle)
    worker.load(bundle.folder)
    return worker


def _race(workers: list[Worker], time_limit: float, observer: Observer) -> Race:
    race = run_race(
        workers, baseline="plain", seed=0, time_limit=time_limit, observer=observer.race
    )
    if race.stopped_because == "interrupted":
        raise KeyboardInterrupt
    return race


@contextmanager
def _burning_cores(cores: tuple[int, ...]) -> Iterator[None]:
    """A process that never rests on each of the cores."""
    command = (sys.executable, "-m", "golow.worker.plant", "--burn")
    settings = worker_environment(command[0], 1, {})
    with ExitStack() as stack:
        for core in cores:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=settings)
            stack.enter_context(process)
            stack.callback(process.kill)
            _pin(process.pid, core)
            if process.stdout is not None:
                process.stdout.readline()  # it burns from now on
        yield


def _pin(process: int, core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process, {core})


# ---------------------------------------------------------------- what is found


def _clock() -> Finding:
    reads = [time.perf_counter_ns() for _ in range(10_000)]
    steps = [after - before for before, after in pairwise(reads)]
    finest = min((step for step in steps if step > 0), default=10**9)
    return Finding(
        name="the clock",
        expected=f"steps of at most {COARSEST_CLOCK_NS} ns",
        found=f"steps of {finest} ns",
        passed=finest <= COARSEST_CLOCK_NS,
        explanation="short iterations cannot be told apart by so coarse a clock: time larger ones",
    )


def _wait(race: Race) -> Finding:
    blocks = [block for blocks in race.blocks.values() for block in blocks]
    readable = bool(blocks) and all(block.wait_share is not None for block in blocks)
    return Finding(
        name="waiting for a core",
        expected="readable",
        found="readable" if readable else "not readable",
        passed=readable,
        explanation="the kernel does not tell how long a process waited for a core (schedstat), so "
        "contended blocks cannot be told from clean ones: close other programs",
    )


def _equal(race: Race, checks: Mapping[str, Check]) -> Finding:
    verdicts = {checks[name].verdict for name in ("plain", "twin")}
    return Finding(
        name="two equal workers",
        expected="match; same or unclear",
        found=f"{' and '.join(sorted(verdicts))}; {_ratio_text(race, 'twin')}",
        passed=verdicts == {"match"} and _word(race, "twin") in ("same", "unclear"),
        explanation="golow calls two equal programs different here: differences of this size "
        "between levels mean nothing now",
    )


def _slower(race: Race, checked: Check) -> Finding:
    ratio = race.ratio("slower")
    low, high = SLOWER_RANGE
    return Finding(
        name=f"one slower by {SLOWER:.0%}",
        expected=f"match; slower, {low} to {high}",
        found=f"{checked.verdict}; {_ratio_text(race, 'slower')}",
        passed=checked.verdict == "match"
        and ratio is not None
        and ratio.word == "slower"
        and low <= ratio.value <= high,
        explanation=f"a difference of {SLOWER:.0%} is lost in this machine's noise"
        f" ({race.contended_share('slower'):.0%} of its blocks waited for a core): close other "
        "programs, or read only larger differences",
    )


def _shifted(checked: Check) -> Finding:
    return Finding(
        name=f"one wrong by {SHIFT:g}",
        expected="differs",
        found=checked.verdict,
        passed=checked.verdict == "differs",
        explanation="the check lets a wrong answer pass: no verdict of this golow can be relied on",
    )


def _contended(race: Race) -> Finding:
    share = race.summary.contended_share
    return Finding(
        name="every core burnt meanwhile",
        expected="blocks marked contended",
        found=f"{share:.0%} of the blocks marked",
        passed=share >= CONTENDED_MOST,
        explanation="golow does not see here that its workers wait for a core: "
        "watch the load yourself",
    )


def _equal_while_burnt(race: Race) -> Finding:
    return Finding(
        name="two equal workers meanwhile",
        expected="same or unclear",
        found=_ratio_text(race, "twin"),
        passed=_word(race, "twin") in ("same", "unclear"),
        explanation="on a busy machine golow calls two equal programs different here: "
        "do not measure beside other work",
    )


def _word(race: Race, name: str) -> str:
    ratio = race.ratio(name)
    # Too few rounds for a ratio is no claim either, but a worker that failed proves nothing.
    return "failed" if race.failures else ratio.word if ratio else "unclear"


def _ratio_text(race: Race, name: str) -> str:
    ratio = race.ratio(name)
    if ratio is None:
        return "; ".join(failure.message for failure in race.failures.values()) or "no ratio"
    return f"{ratio.word}, {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
