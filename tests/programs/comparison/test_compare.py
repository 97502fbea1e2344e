"""The whole program with real workers: right ones, slow ones, wrong ones and those that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import psutil
import pytest
import torch
from torch import nn

import golow
from golow import api
from golow.levels.ladder import Launch
from golow.levels.starter import Starter
from golow.measure.stats import block_figure
from golow.programs.comparison import bench, compare
from golow.worker.client import Worker
from golow.worker.time_limits import Limits
from golow.workload.bundle import Bundle
from support.places import WORKERS
from support.processes import all_gone, family, mentioning, soon

pytestmark = pytest.mark.usefixtures("forked")

FAULTY = WORKERS / "faulty.py"


def plant(*options: str) -> list[str]:
    """golow's own worker of known cost and fault."""
    return [sys.executable, "-m", "golow.worker.plant", *options]


def faulty(fault: str, *numbers: int) -> list[str]:
    return [sys.executable, str(FAULTY), fault, *map(str, numbers)]


def model(size: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(size, size, bias=False)


class Watch:
    """An observer that notes what it hears, and the parent's own processor time."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.rounds: list[tuple[float, float]] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        self.rounds.append((time.monotonic(), time.process_time()))


# ---------------------------------------------------------------- as it should be


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_equal_slower_and_wrong_workers(tmp_path: Path) -> None:
    """The figures of a race, the verdicts, and what stands beside them."""
    watch = Watch()
    result = golow.compare(
        model(256),
        torch.randn(64, 256),
        levels=["eager"],
        workers={
            "plain": plant("--products", "160"),
            "slower": plant("--products", "160", "--slower", "0.5"),
            "wrong": " ".join(plant("--shift", "1")),
        },
        threads=1,
        interval=0.2,
        time_limit=6,
        cache=tmp_path,
        observer=watch,
    )
    runs = {run.level: run for run in result.comparison.runs}
    assert list(runs) == ["eager", "plain", "slower", "wrong"]
    assert [run.check.verdict for run in runs.values()] == ["match", "match", "match", "differs"]

    plain, slower, wrong = runs["plain"], runs["slower"], runs["wrong"]
    assert plain.time is not None
    assert slower.time is not None
    # Slower by 1.5; round by round, since other programs slow down whole rounds.
    pairs = zip(slower.blocks, plain.blocks, strict=True)
    times = [block_figure(one.host_ns) / block_figure(other.host_ns) for one, other in pairs]
    assert 1.2 < median(times) < 1.8
    assert (wrong.time, wrong.ratio, wrong.blocks) == (None, None, ())  # no match, no time
    assert "/output/0 is off by 1" in wrong.check.reason
    assert runs["eager"].ratio is not None
    assert runs["eager"].ratio.value == 1

    for run in (plain, slower):
        assert run.conditions.resident_with == tuple(
            name for name in ("eager", "plain", "slower") if name != run.level
        )
        assert run.conditions.threads == 1
        assert len(run.blocks) == result.comparison.race.rounds
        assert (run.quantity("ready") or 0) > 0
        assert (run.quantity("resident") or 0) > 10**6
        assert run.environment.thread_settings["OMP_NUM_THREADS"] == "1"
    assert watch.stages[0] == "preparing the workload"
    assert "plain (2 of 4): checking" in watch.stages

    # The parent sleeps while its workers work, and computes intervals only between the rounds.
    (began, used_before), (ended, used_after) = watch.rounds[0], watch.rounds[-1]
    share = (used_after - used_before) / (ended - began)
    print(f"the parent used {share:.1%} of a core during {len(watch.rounds)} rounds")
    assert share < 0.1


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_levels_for_which_there_is_no_room_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is timed beside the baseline, in a race of its own; the baseline's figures are of one
    race, not of all."""
    monkeypatch.setattr(bench, "MEMORY_MARGIN", 10**9)
    result = golow.compare(
        model(64),
        torch.randn(8, 64),
        levels=["eager"],
        workers={"one": plant("--products", "1"), "other": plant("--products", "1")},
        threads=1,
        time_limit=1,
        cache=tmp_path,
    )
    assert [run.check.verdict for run in result.comparison.runs] == ["match"] * 3
    assert result.run("one").conditions.resident_with == ("eager",)
    assert result.run("other").conditions.resident_with == ("eager",)
    assert result.run("eager").conditions.resident_with == ("one",)
    for run in result.comparison.runs:
        assert run.blocks
        names = [quantity.name for quantity in run.memory]
        assert len(names) == len(set(names))
        assert run.ratio is not None


# ---------------------------------------------------------------- faults


class Counting(Starter):
    """Keeps the names of all workers that it has started."""

    names: list[str]

    def worker(self, name: str, launch: Launch, bundle: Bundle) -> Worker:
        self.names.append(name)
        return super().worker(name, launch, bundle)


@pytest.mark.slow
def test_the_check_and_the_race_share_one_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of the check's own would cost its start again."""
    names: list[str] = []
    monkeypatch.setattr(Counting, "names", names, raising=False)
    monkeypatch.setattr(compare, "Starter", Counting)
    golow.compare(
        model(64), torch.randn(8, 64), levels=["eager"], workers={"twin": plant("--products", "1")},
        threads=1, time_limit=0.1, cache=tmp_path,
    )  # fmt: skip
    assert names == ["eager:float64", "eager", "twin"]


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_no_fault_costs_another_level_its_figures(tmp_path: Path) -> None:
    """Every way to fail at once; all before the race or in the middle of it."""
    # After how many iterations, of how many milliseconds: about ten come before the race, in which
    # a block then has two to five on any machine, and there are ten blocks at least.
    in_the_race = 25, 25
    result = golow.compare(
        model(64),
        torch.randn(8, 64),
        levels=["eager"],
        workers={
            "twin": plant("--products", "1"),
            "parent": faulty("child"),
            "killed": faulty("killed", *in_the_race),
            "hung": faulty("hung", *in_the_race),
            "full": faulty("out_of_memory", *in_the_race),
            "raised": faulty("raised", *in_the_race),
            "garbage": faulty("garbage"),
            "short": faulty("one_short"),
            "unwritten": faulty("wrote nothing"),
            "unreadable": faulty("wrote garbage"),
        },
        threads=1,
        interval=0.5,
        time_limit=20,
        cache=tmp_path,
        limits=Limits(iteration=5, block=5),
    )
    runs = {run.level: run for run in result.comparison.runs}
    expected = {
        "eager": ("match", ""),
        "twin": ("match", ""),
        "parent": ("match", ""),
        "killed": ("failed", "died: it was ended by SIGKILL"),
        "hung": ("failed", "hung: no answer to `time` within"),
        "full": ("failed", "out of memory: Python could not allocate memory"),
        "raised": ("failed", "RuntimeError: the kernel refuses this stride"),
        "garbage": ("failed", "protocol: its answer to `time` is not a JSON object"),
        "short": ("failed", "protocol: the request was for 1 iterations; it timed 0"),
        "unwritten": ("failed", "protocol: it reported that it wrote judged.safetensors"),
        "unreadable": ("failed", "its outputs cannot be read"),
    }
    for name, (verdict, reason) in expected.items():
        assert runs[name].check.verdict == verdict, name
        assert not runs[name].check.reason.startswith("failed:"), "the verdict says so already"
        assert reason in runs[name].check.reason
    for name in ("eager", "twin"):
        assert runs[name].time is not None
        assert runs[name].ratio is not None
        assert runs[name].memory
    for name in ("killed", "hung", "full", "raised"):  # what was measured until then is kept
        assert runs[name].blocks
        assert runs[name].time is not None
        assert runs[name].ratio is None  # and its last rounds are not believed
    assert "raise RuntimeError" in runs["raised"].log
    assert result.comparison.race.rounds > len(runs["killed"].blocks)
    assert golow.load(result.save(tmp_path)).comparison == result.comparison


CHILD = """
import json, sys, torch, golow
from torch import nn

class Observer:
    def stage(self, text): pass
    def race(self, rounds, seconds, limit, widest): print("round", rounds, flush=True)

torch.manual_seed(0)
try:
    golow.compare(nn.Linear(64, 64, bias=False), torch.randn(8, 64), levels=["eager"],
                  workers={"twin": json.loads(sys.argv[1])}, threads=1, interval=0, time_limit=600,
                  observer=Observer())
except golow.Interrupted as interrupted:
    print("saved", interrupted.result.save(sys.argv[2]), flush=True)
    sys.exit(130)
"""


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    """Ctrl-C in the middle of the race, from a terminal: it goes to the whole process group."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", CHILD, json.dumps(plant("--products", "1")), str(tmp_path)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line == "round 3\n":
                break
        processes = family(child.pid)
        assert len(processes) == 3  # itself, eager, twin
        os.killpg(child.pid, signal.SIGINT)
        last = child.stdout.read().splitlines()[-1]
        assert child.wait() == 130
    assert all_gone(*processes)
    assert soon(lambda: mentioning(str(temporary)) == [])
    saved = golow.load(Path(last.removeprefix("saved "))).comparison
    assert saved.race.stopped_because == "interrupted"
    assert saved.race.rounds >= 3
    for run in saved.runs:
        assert run.check.verdict == "match"
        assert len(run.blocks) == saved.race.rounds
        assert run.time is not None
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("nobody_left")
@pytest.mark.parametrize("at", ["computing the float64 reference", "twin (2 of 2): loading"])
def test_an_interrupt_before_the_race(tmp_path: Path, at: str) -> None:
    """There is a result all the same: it names the levels that the run did not start."""

    class Impatient(Watch):
        def stage(self, text: str) -> None:
            if text == at:
                raise KeyboardInterrupt

    with pytest.raises(golow.Interrupted, match=r"sys\.last_value\.result$") as raised:
        golow.compare(
            model(64),
            torch.randn(8, 64),
            levels=["eager"],
            workers={"twin": plant("--products", "1")},
            threads=1,
            cache=tmp_path,
            observer=Impatient(),
        )
    found = raised.value.result.comparison
    assert found.race.stopped_because == "interrupted"
    assert (found.runs[1].check.verdict, found.runs[1].check.reason) == (
        "failed",
        "the run ended before this level",
    )
    assert all(run.time is None for run in found.runs)


# ---------------------------------------------------------------- what can be asked for


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        ({"levels": ["eagre"]}, "there is no level 'eagre'", "did you mean eager"),
        ({"levels": ["compile:frozen"]}, "no variant 'frozen'", "compile:freezing"),
        ({"levels": ["compile:freezing"], "mode": "train"}, "not for train", "golow levels"),
        ({"workers": {"eager": "./mine"}}, "a worker cannot be called 'eager'", "no level has"),
        ({"workers": {"comparison": "./mine"}}, "cannot be called 'comparison'", ""),
        ({"workers": {"../mine": "./mine"}}, "cannot be called '../mine'", "letters"),
        ({"workers": {"a:b": "./mine"}}, "cannot be called 'a:b'", "letters"),
        ({"workers": {"mine": ""}}, "the worker 'mine' has no command", ""),
        ({"workers": {"mine": []}}, "the worker 'mine' has no command", ""),
        ({"threads": -1}, "-1 threads compute nothing", ""),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(
    asked: dict[str, object], message: str, hint: str
) -> None:
    before = psutil.Process().children()
    with pytest.raises(golow.GolowError) as raised:
        golow.compare(model(64), torch.randn(8, 64), **({"levels": ["eager"]} | asked))  # type: ignore[arg-type]
    assert message in raised.value.message
    assert hint in raised.value.hint
    assert psutil.Process().children() == before


@pytest.mark.slow
def test_without_room_for_the_reference_nothing_is_checked() -> None:
    class Thirsty(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype == torch.float64:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return super().forward(x)

    with pytest.raises(golow.GolowError) as raised:
        golow.compare(Thirsty(4, 4), torch.randn(8, 4), levels=["eager"])
    said, why, *_ = raised.value.message.splitlines()
    assert said == (
        "eager and its float64 reference do not fit into memory, so no level can be checked"
    )
    assert why.endswith("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_a_model_that_casts_to_half_is_told_so() -> None:
    class Casting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.half_layer = nn.Linear(4, 4).half()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.half_layer(x.half()).float()

    with pytest.raises(golow.GolowError, match="casts to half precision") as raised:
        golow.compare(Casting(), torch.randn(8, 4), levels=["eager"], quiet=True)
    assert "precision= chooses half" in str(raised.value)
    assert "batch" not in raised.value.hint
    assert "File" not in raised.value.message


def test_a_workers_name_is_not_that_of_a_variants_file() -> None:
    with pytest.raises(golow.GolowError, match="cannot be called 'eager-channels_last'"):
        golow.compare(
            model(64),
            torch.randn(8, 64),
            levels=["eager:channels_last"],
            workers={"eager-channels_last": "./mine"},
        )


def test_the_public_names_are_what_they_say() -> None:
    """However often, and whatever was imported before."""
    for _ in range(2):
        assert callable(golow.compare)
        assert golow.compare is api.compare
        assert golow.Interrupted is api.Interrupted
        assert callable(golow.load)
    with pytest.raises(AttributeError, match="no attribute 'compere'"):
        golow.compere  # noqa: B018
