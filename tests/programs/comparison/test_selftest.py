"""The selftest finds what it planted, and does not pass where it should not."""

from __future__ import annotations

import os

import pytest

from golow.measure import race as race_of
from golow.measure.race import run_race
from golow.measure.rounds import Race
from golow.programs.comparison import selftest as testing
from golow.programs.comparison.selftest import Finding, SelftestResult, selftest
from golow.records.comparison import Check
from golow.worker.scheduling import run_queue_wait_ns
from support.plants.noise import SyntheticMachine, VirtualWorker
from support.processes import all_gone, family
from support.workers.forked_workers import ForkServer

pytestmark = pytest.mark.usefixtures("forked")

MATCH = Check(verdict="match")
CHECKS = {"plain": MATCH, "twin": MATCH}


class Watch:
    def __init__(self) -> None:
        self.stages: list[str] = []
        self.rounds = 0

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        self.rounds += 1


@pytest.mark.slow
def test_the_selftest_finds_what_it_planted(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    """A real run, too short for the times; what needs no calm machine is certain all the same."""
    # Who reports a nanosecond an iteration gets the most of them: a thousand take half a minute.
    monkeypatch.setattr(race_of, "MOST_ITERATIONS", 100)
    fork_server.start()
    watch, before = Watch(), set(family(os.getpid()))
    result = selftest(watch, time_limit=8)
    findings = {finding.name: finding for finding in result.findings}
    for finding in result.findings:
        print(f"{finding.name}: {finding.expected} | {finding.found} | {finding.passed}")
    assert list(findings) == [
        "the clock",
        "waiting for a core",
        "two equal workers",
        "a worker slower by 5%",
        "a worker wrong by 1",
        "8 workers that cheat while timed",
        "while every core is busy",
        "two equal workers, cores busy",
    ]
    assert findings["a worker wrong by 1"].found == "differs"
    assert findings["a worker wrong by 1"].passed
    assert findings["two equal workers"].found.startswith("match; ")
    assert findings["a worker slower by 5%"].found.startswith("match; ")
    assert findings["the clock"].passed
    readable = run_queue_wait_ns(os.getpid()) is not None
    assert findings["waiting for a core"].passed == readable
    assert findings["while every core is busy"].passed == readable
    assert all(finding.explanation and finding.expected for finding in result.findings)
    assert result.trusted == all(finding.passed for finding in result.findings)
    cheated = findings["8 workers that cheat while timed"]
    assert cheated.passed or cheated.found == "missed: half clock; 100% of the blocks contended"
    assert len(watch.stages) == 4
    assert watch.rounds >= 2
    assert all_gone(*(set(family(os.getpid())) - before))  # nothing burns on
    out, _ = capfd.readouterr()
    assert "selftest" not in out  # it prints nothing itself


# ---------------------------------------------------------------- the findings, on virtual workers


def race(**factors: float) -> Race:
    """A race on a noisy machine, of workers that do so many times the work of the first."""
    machine = SyntheticMachine(1)
    workers = [
        VirtualWorker(name, machine, seconds=0.025 * factor, seed=1, twin=True)
        for name, factor in {"plain": 1.0, **factors}.items()
    ]
    return run_race(workers, baseline="plain", seed=0, time_limit=60, clock=machine)


def test_equal_workers_pass_and_unequal_ones_do_not() -> None:
    assert testing._equal(race(twin=1.0), CHECKS).passed
    assert testing._equal_while_burnt(race(twin=1.0)).passed
    assert not testing._equal(race(twin=1.1), CHECKS).passed
    assert not testing._equal_while_burnt(race(twin=0.9)).passed
    assert not testing._equal(race(twin=1.0), CHECKS | {"twin": Check(verdict="differs")}).passed


@pytest.mark.parametrize(
    ("factor", "passed"), [(1.05, True), (1.0, False), (0.95, False), (1.12, False)]
)
def test_five_percent_must_be_found_as_five_percent(factor: float, passed: bool) -> None:
    found = testing._slower(race(slower=factor), MATCH)
    assert found.passed == passed
    assert "of its blocks waited for a core" in found.explanation


def test_without_a_ratio_nothing_is_found() -> None:
    levels = ("plain", "twin", "slower")
    nothing = Race(levels=levels, baseline="plain", seed=0, target=0.02, least_rounds=10)
    assert not testing._slower(nothing, MATCH).passed
    assert testing._slower(nothing, MATCH).found == "match; no ratio"
    assert not testing._wait(nothing).passed
    assert not testing._contended(nothing).passed


def test_a_wrong_answer_that_matches_is_no_pass() -> None:
    assert testing._shifted(Check(verdict="differs")).passed
    assert not testing._shifted(MATCH).passed
    assert "do not rely on any verdict of this golow" in testing._shifted(MATCH).explanation


def test_one_finding_that_fails_is_enough() -> None:
    good = Finding(name="a", expected="b", found="b", passed=True, explanation="c")
    bad = Finding(name="a", expected="b", found="c", passed=False, explanation="c")
    assert SelftestResult(findings=(good, good)).trusted
    assert not SelftestResult(findings=(good, bad)).trusted
