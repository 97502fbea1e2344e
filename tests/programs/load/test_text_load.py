"""Loads of texts: LoadGen's times of tokens, the proof of every token, and a whole test."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import golow
from golow.programs.load import asked_texts
from golow.programs.load.asked_texts import AskedTexts
from golow.programs.load.coming_texts import END, TOKEN, ComingTexts, tokens_in
from golow.programs.load.level_under_load import LevelUnderLoad, Run
from golow.programs.load.load_record import LoadRun, TextPlan
from golow.programs.load.served_level import LoadRequest
from golow.programs.load.served_texts import contexts
from golow.programs.load.text_proof import TextProof
from golow.records.errors import Unsupported
from golow.report.console import PlainConsole
from golow.report.load.table import render
from golow.storage.scratch import scratch_folder
from golow.worker.time_limits import Limits
from golow.workload.generation.request import TextRequest
from golow.workload.generation.sources import prepare_text
from golow.workload.generation.step_modules import step_of
from golow.workload.generation.text_bundle import TextBundle, write_text_bundles
from support.command import golow as command
from support.load.places import place_of
from support.load.planted_texts_level import FIRST, LATER, TOKENS
from support.models.text_models import varied_gpt2
from support.places import SUPPORT

pytestmark = pytest.mark.usefixtures("forked")

PLANTED = SUPPORT / "load" / "planted_texts_level.py"
LONG = 20.0  # seconds that no token here takes
Answers = list[tuple[int, bytes]]


@pytest.fixture(scope="module")
def loadgen() -> None:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen: pip install golow[load]")


def test_a_text_is_whole_when_its_end_comes() -> None:
    coming = ComingTexts()
    one, other, third = (TOKEN.pack(token) for token in (7, 8, 9))
    assert coming.add([(0, one), (1, other)]) == ([(0, one), (1, other)], [])
    assert coming.add([(0, third), (1, END)]) == ([], [(1, other)])
    assert coming.add([(0, END), (0, one)]) == ([(0, one)], [(0, one + third)])
    assert tokens_in(one + third) == (7, 9)


# ---------------------------------------------------------------- LoadGen's times


@pytest.fixture(scope="module")
def planted(loadgen: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LevelUnderLoad]:
    place = place_of(tmp_path_factory.mktemp("texts"))
    with LevelUnderLoad("texts", place._replace(command=(sys.executable, str(PLANTED)))) as level:
        level.load()
        yield level


def offered(level: LevelUnderLoad, folder: Path, rate: float, **limits: float) -> LoadRun:
    """A run of the server scenario with these limits."""
    texts = TextPlan(prompt=(1, 1), tokens=TOKENS, **limits)
    level.place = level.place._replace(plan=place_of(folder, texts=texts, percentile=0.9).plan)
    found, answers = level.run(Run("server", rate, 0.25, 1))
    assert answers
    assert all(tokens_in(text) == (index,) * TOKENS for index, text in answers)
    return found


def test_loadgen_times_the_first_token_and_those_behind_it(
    planted: LevelUnderLoad, tmp_path: Path
) -> None:
    found = offered(planted, tmp_path, 100.0, ttft=LONG, tpot=LONG)
    assert (found.outcome, found.valid) == ("held", True)
    first, later = found.times("ttft"), found.times("tpot")
    assert len(first) == len(later) == found.answered
    assert min(first) >= FIRST * 1e9
    assert min(found.latencies) >= (FIRST + (TOKENS - 1) * LATER) * 1e9
    # LoadGen hears all tokens at once where its process had to wait for a core: no mean is sure.
    for one, mean, whole in zip(first, later, found.latencies, strict=True):
        assert mean == (whole - one) // (TOKENS - 1) > 0


@pytest.mark.parametrize("late", ["ttft", "tpot"])
def test_either_limit_may_be_the_one_that_is_not_held(
    late: str, planted: LevelUnderLoad, tmp_path: Path
) -> None:
    limits = {"ttft": LONG, "tpot": LONG, late: LATER / 10}
    found = offered(planted, tmp_path, 100.0, **limits)
    assert found.outcome == "over"
    assert found.reason.startswith(f"{late.upper()}: ")


def test_a_run_of_too_few_texts_is_unclear(planted: LevelUnderLoad, tmp_path: Path) -> None:
    found = offered(planted, tmp_path, 20.0, tpot=LONG)
    assert found.outcome == "unclear"
    assert "more queries" in found.reason


# ---------------------------------------------------------------- the proof


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> TextBundle:
    request = TextRequest(varied_gpt2(), prompt=6, tokens=TOKENS)
    (made,) = write_text_bundles(prepare_text(request), tmp_path_factory.mktemp("bundle"))
    return made


@pytest.fixture(scope="module")
def asked() -> AskedTexts:
    return asked_texts.drawn(TextPlan(prompt=(3, 6), tokens=TOKENS), 256, 1, 0)


@pytest.fixture(scope="module")
def proof(bundle: TextBundle, asked: AskedTexts) -> Iterator[TextProof]:
    with scratch_folder() as folder, TextProof(bundle, asked, folder, Limits()) as made:
        yield made


@pytest.fixture
def answers(asked: AskedTexts) -> Answers:
    """The right ones."""
    step = step_of(varied_gpt2(), 1, 6 + TOKENS)
    return [(index, written(step, prompt)) for index, prompt in enumerate(asked.prompts)]


@torch.no_grad()
def written(step: Any, prompt: tuple[int, ...]) -> bytes:
    """The likeliest tokens behind a prompt."""
    given, place, found = torch.tensor([prompt]), 0, b""
    for _ in range(TOKENS):
        token = step(given, torch.tensor(place)).argmax(-1)
        place, given, found = place + given.shape[1], token[:, None], found + TOKEN.pack(token)
    return found


def test_right_texts_match_in_any_order(proof: TextProof, answers: Answers) -> None:
    assert len({len(prompt) for prompt in proof._asked.prompts}) > 1
    assert proof.judge([*answers[::-1], answers[0]]).verdict == "match"


def test_wrong_cut_unknown_and_missing_tokens_are_found(proof: TextProof, answers: Answers) -> None:
    index, right = answers[2]
    last = tokens_in(right)[-1]
    for wrong, words in (
        (right[: -TOKEN.size] + TOKEN.pack((last + 1) % 256), "token 3 of sample 2"),
        (right[: -TOKEN.size], "has 3 tokens, not 4"),
        (right[: -TOKEN.size] + TOKEN.pack(256), "has the token 256"),
    ):
        found = proof.judge_some([answers[1], (index, wrong)])
        assert found.verdict == "differs"
        assert words in found.reason
    assert "1 of 16 answers are missing" in proof.judge(answers[:-1]).reason


@pytest.mark.parametrize("sizes", [(1,), (1, 2)])
def test_a_level_is_not_loaded_with_more_shapes_than_it_can_compile(
    sizes: tuple[int, ...], bundle: TextBundle, asked: AskedTexts
) -> None:
    assert asked.lengths == (3, 4, 5, 6)
    asked.write(bundle.folder)
    request = LoadRequest(
        bundle=str(bundle.folder), level="compile:static", socket="", buckets=sizes, contexts=1,
        most=1, delay=0.0,
    )  # fmt: skip
    if len(sizes) == 1:
        assert len(contexts(request)) == 1
        return
    with pytest.raises(Unsupported, match=r"10 shapes, .* takes 8: use one --prompt"):
        contexts(request)


# ---------------------------------------------------------------- the whole


@pytest.mark.slow
def test_a_model_is_loaded_with_requests_for_texts(loadgen: None, tmp_path: Path) -> None:
    result = golow.load_test(
        varied_gpt2(), levels=["eager"], prompt=(3, 6), tokens=TOKENS, ttft=LONG, tpot=LONG,
        rates=[200], percentile=90, max_batch=2, delay=0.0, seconds=0.2, repeats=1, threads=1,
        quiet=True,
    )  # fmt: skip
    (level,) = result.test.levels
    assert (level.check.verdict, level.check.reason) == ("match", "")
    (run,) = level.runs
    assert (run.outcome, run.reason) == ("held", "")
    assert run.checked > 0
    assert {batch.size for batch in run.batches} <= {1, 2}
    assert golow.load_load_test(result.save(tmp_path)).test.levels == result.test.levels
    text = io.StringIO()
    render(result.test, PlainConsole(file=text, width=100, markup=False))
    assert "4 tokens after 3 to 6" in text.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lenet5", "--ttft", "200ms"), "golow cannot generate text with lenet5"),
        (("gpt2_small", "--tokens", "8"), "for example --ttft 200ms --tpot 20ms, or --rate 2,5."),
        (("gpt2_small", "--ttft", "0ms"), "--ttft must be above 0, up to a day"),
        (("gpt2_small", "--ttft", "1s", "--latency", "1s"), "use --ttft 200ms --tpot 20ms"),
        (("gpt2_small", "--ttft", "1s", "--scenario", "offline"), "server scenario only"),
        (("gpt2_small", "--ttft", "1s", "--prompt", "9..3"), "no prompt has 9 to 3 tokens"),
        (("gpt2_small", "--ttft", "1s", "--prompt", "few"), "--prompt few is not a length"),
        (("gpt2_small", "--ttft", "1s", "--tokens", "1"), "use --tokens 2 or more"),
        (("gpt2_small", "--ttft", "1s", "--sequence", "8"), "--sequence is not for texts"),
        (("gpt2_small", "--ttft", "1s", "--levels", "direct"), "there is no level 'direct'"),
    ],
)
def test_a_mistake_is_a_message(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ended = command("load", *arguments, folder=tmp_path)
    assert ended.status == 2
    assert said in ended.error
    assert "Traceback" not in ended.error
