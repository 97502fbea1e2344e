"""A whole load test of a small model at two levels: record, table, and what a user sees of it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import golow
from golow.programs.load import settings, store
from golow.records.errors import GolowError
from golow.report.console import PlainConsole
from golow.report.load.table import render
from support.command import golow as command
from support.processes import all_gone, family

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]

RATE = 100.0


@pytest.fixture(scope="module")
def tested() -> golow.LoadTestResult:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen: pip install golow[load]")
    return golow.load_test(
        "mlp",
        levels=["eager", "direct"],
        scenarios=["single-stream", "multi-stream", "server", "offline"],
        rates=[RATE],
        latency=20.0,  # that no answer takes, whatever else the machine does
        percentile=90,
        max_batch=4,
        seconds=0.2,
        repeats=2,
        threads=1,
        quiet=True,
    )


def test_every_level_is_proved_and_loaded_in_every_scenario(tested: golow.LoadTestResult) -> None:
    test = tested.test
    assert [level.level for level in test.levels] == ["eager", "onednn"]
    assert test.samples == 16
    assert test.plan.buckets == (1, 2, 4)
    assert not test.interrupted
    for level in test.levels:
        assert level.check.verdict == "match"
        assert not level.failed
        assert {item.name for item in level.memory} == {"resident", "resident_peak"}
        for scenario in test.plan.scenarios:
            rate = RATE if scenario == "server" else None
            runs = level.of(scenario, rate)
            assert [run.round for run in runs] == [1, 2], scenario
            for run in runs:
                assert run.answered == sum(batch.size for batch in run.batches)
                assert run.latencies
                assert run.outcome == ("held" if scenario == "server" else "measured")
                assert all(batch.bucket in test.plan.buckets for batch in run.batches)


def test_requests_that_come_together_are_batched(tested: golow.LoadTestResult) -> None:
    offline = [batch for run in tested.level("onednn").of("offline") for batch in run.batches]
    single = [batch for run in tested.level("onednn").of("single-stream") for batch in run.batches]
    assert max(batch.size for batch in offline) == 4
    assert {batch.size for batch in single} == {1}


def test_a_group_of_streams_is_one_latency(tested: golow.LoadTestResult) -> None:
    for run in tested.level("eager").of("multi-stream"):
        assert run.answered == tested.test.plan.streams * len(run.latencies)


def test_what_was_tested_is_shown_saved_and_read_again(
    tested: golow.LoadTestResult, tmp_path: Path
) -> None:
    text = io.StringIO()
    render(tested.test, PlainConsole(file=text, width=100, markup=False))
    assert "onednn" in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 100
    folder = tested.save(tmp_path)
    assert golow.load_load_test(folder).test == store.load(folder)
    assert (folder / "load.csv").is_file()
    assert len(tested.to_pandas()) == 8
    assert "mlp" in repr(tested)
    assert [one.name for one in tested.figures(tmp_path)] == ["load-rate.svg", "load-busy.svg"]


def test_nothing_is_left_running(tested: golow.LoadTestResult) -> None:
    words = ("golow.programs.load.served_level", "golow.programs.load.generator")
    children = psutil.Process(os.getpid()).children(recursive=True)
    alive = [one for one in children if one.status() != psutil.STATUS_ZOMBIE]
    assert not [one for one in alive if any(word in one.cmdline() for word in words)]


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--levels", "eagre", "--rate", "5"), "did you mean eager"),
        (("--levels", "eager:float64", "--rate", "5"), "cannot be called from your own program"),
        (("--rate", "five"), "--rate five is not a list of numbers"),
        (("--latency", "20"), "--latency 20 is not a time with a unit"),
        (("--latency", "0ms"), "--latency must be above 0"),
        (("--scenario", "server"), "for example --latency 20ms, or --rate 50,100."),
        (("--scenario", "serve"), "there is no scenario 'serve'"),
        (("--percentile", "100", "--rate", "5"), "--percentile must be at least 50 and below 100"),
        (("--contexts", "two", "--rate", "5"), "--contexts two is not a list of whole numbers"),
        (("--sequence", "16-128", "--rate", "5"), "for example --sequence 128, or --sequence 16.."),
        (("--sequence", "32..16", "--rate", "5"), "no sample has 32 to 16 tokens"),
        (("--sequence", "8..16", "--rate", "5"), "--sequence is for models"),
        (("--url", "somewhere", "--rate", "5"), "is not the address of a service"),
    ],
)
def test_a_mistake_is_a_message(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ended = command("load", "mlp", *arguments, folder=tmp_path)
    assert ended.status == 2
    assert said in ended.error
    assert "Traceback" not in ended.error


def test_without_loadgen_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MODULE", "mlperf_loadgen_that_is_not_there")
    with pytest.raises(GolowError, match=r"pip install 'golow\[load\]'"):
        golow.load_test("mlp", levels=["eager"], quiet=True)


def test_a_load_test_makes_its_batches_itself() -> None:
    with pytest.raises(GolowError, match="max_batch="):
        golow.load_test("mlp", levels=["eager"], batch=8, quiet=True)


@pytest.mark.usefixtures("forked_commands")
def test_an_interrupt_shows_and_saves_what_is_there(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen: pip install golow[load]")
    options = ("--levels", "eager", "--scenario", "offline", "--seconds", "0.1")
    arguments = [sys.executable, "-m", "golow", "load", "mlp", *options]
    with subprocess.Popen(
        [*arguments, "--repeats", "500", "--threads", "1", "--max-batch", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith("round 2 of 500"):
                break
        processes = family(child.pid)
        child.send_signal(signal.SIGINT)
        output, error = child.communicate(timeout=120)
    assert child.returncode == 130, error
    assert "interrupted: partial results" in output
    [folder] = (tmp_path / "runs").iterdir()
    found = store.load(folder)
    assert found.interrupted
    assert len(found.levels[0].runs) >= 1
    assert all_gone(*processes)
