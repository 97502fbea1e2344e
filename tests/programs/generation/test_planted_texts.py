"""Each gate of a generation catches the fault that is planted for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from golow.programs.generation.generate import generate
from golow.programs.generation.generation_record import Generation, TextRun
from golow.programs.generation.settings import GenerationSettings
from golow.records.errors import GolowError, Unfinished
from golow.workload.generation.request import TextRequest
from support.models.text_models import varied_gpt2
from support.places import SUPPORT
from support.worker_programs.planted_texts import FAULTS

pytestmark = pytest.mark.usefixtures("forked")

PLANTED = SUPPORT / "worker_programs" / "planted_texts.py"
TOKENS = 12


class Watched:
    """An observer that remembers the stages."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """Does nothing."""


@pytest.fixture(scope="module")
def found() -> Generation:
    commands = {fault.replace(" ", "-"): [sys.executable, str(PLANTED), fault] for fault in FAULTS}
    settings = GenerationSettings(levels=["eager"], workers=commands, seconds=0.2)
    request = TextRequest(varied_gpt2(), prompt=16, tokens=TOKENS, batch=(2,), threads=1)
    return generate(request, settings, Watched())


def run_of(found: Generation, level: str) -> TextRun:
    return next(run for run in found.cases[0].runs if run.level == level)


@pytest.mark.parametrize("level", ["eager", "eager:static", "sound"])
def test_sound_levels_match_and_are_timed(found: Generation, level: str) -> None:
    run = run_of(found, level)
    assert run.verdict == "match", run.reason
    assert run.token is not None
    assert run.first_token is not None
    assert run.replayed >= 2 * TOKENS
    assert run.worst <= found.cases[0].error_limit


@pytest.mark.parametrize("level", ["stale-row", "off-by-one"])
def test_a_wrong_cache_shows_in_the_forced_logits(found: Generation, level: str) -> None:
    run = run_of(found, level)
    assert run.verdict == "differs"
    assert run.check is not None
    assert run.check.verdict == "differs"
    assert "output" in run.reason
    assert run.token is None


@pytest.mark.parametrize("level", ["stored", "skips"])
def test_a_cheat_while_it_generates_shows_in_the_replay(found: Generation, level: str) -> None:
    run = run_of(found, level)
    assert run.check is not None
    assert run.check.verdict == "match"
    assert run.verdict == "differs"
    assert "is not the model's" in run.reason
    assert run.token is None
    assert run.blocks == ()


def test_times_that_leave_out_half_are_refuted(found: Generation) -> None:
    run = run_of(found, "clock")
    assert run.verdict == "differs"
    assert "of the time that passed" in run.reason


def test_a_worker_that_dies_is_a_failure_with_its_reason(found: Generation) -> None:
    run = run_of(found, "dies")
    assert run.verdict == "failed"
    assert "status 3" in run.reason


def test_a_level_that_refuses_is_unavailable(found: Generation) -> None:
    run = run_of(found, "refuses")
    assert run.verdict == "unavailable"
    assert run.reason == "it was planted to refuse"


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    class Interrupting(Watched):
        def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
            if rounds == 2:
                raise KeyboardInterrupt

    settings = GenerationSettings(levels=[], seconds=5, cache=tmp_path)
    request = TextRequest(varied_gpt2(), prompt=4, tokens=8, threads=1)
    found = generate(request, settings, Interrupting())
    run = run_of(found, "eager:static")
    assert found.interrupted
    assert run.verdict == "match"
    assert len(run.blocks) == 2
    assert found.cases[0].race is not None
    assert found.cases[0].race.stopped_because == "interrupted"


def test_ctrl_c_before_the_check_says_that_nothing_is_proved(tmp_path: Path) -> None:
    class Interrupting(Watched):
        def stage(self, text: str) -> None:
            if "reference" in text:
                raise KeyboardInterrupt

    settings = GenerationSettings(levels=[], seconds=5, cache=tmp_path)
    request = TextRequest(varied_gpt2(), prompt=4, tokens=8, threads=1)
    found = generate(request, settings, Interrupting())
    run = run_of(found, "eager:static")
    assert run.verdict == "unavailable"
    assert "before this level" in run.reason


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GolowError("the disk is full")])
def test_what_ends_the_last_stage_loses_no_batch_size(error: BaseException, tmp_path: Path) -> None:
    class Ending(Watched):
        def stage(self, text: str) -> None:
            if text == "measuring a plain read of the memory":
                raise error

    settings = GenerationSettings(levels=[], seconds=0.1, cache=tmp_path)
    request = TextRequest(varied_gpt2(), prompt=4, tokens=8, threads=1)
    if isinstance(error, GolowError):
        with pytest.raises(Unfinished, match="the disk is full") as raised:
            generate(request, settings, Ending())
        found = raised.value.record
    else:
        found = generate(request, settings, Ending())
    assert found.interrupted
    assert run_of(found, "eager:static").token is not None
