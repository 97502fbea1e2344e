"""Every answer is judged by golow's rule: planted wrong, missing and cut ones are found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from golow.levels.torch import bundle as torch_bundle
from golow.observer import Silent
from golow.programs.load.level_under_load import Run
from golow.programs.load.proof import Proof
from golow.programs.load.samples import samples_of
from golow.programs.load.tested_level import TestedLevel
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.load.places import place_of

pytestmark = pytest.mark.usefixtures("forked")

FAULTS = Path(__file__).parents[2] / "support" / "load" / "planted_model.py"
Answers = list[tuple[int, bytes]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    prepared = prepare(Request("mlp", batch=4, threads=1))
    return write_bundle(prepared, tmp_path_factory.mktemp("proof") / "bundle")[0]


@pytest.fixture(scope="module")
def proof(bundle: Bundle) -> Iterator[Proof]:
    with scratch_folder() as folder:
        yield Proof(bundle, folder)


def outputs_of(bundle: Bundle) -> Tensor:
    with torch.inference_mode():
        found: Tensor = torch_bundle.module(bundle)(*samples_of(bundle).tensors)
    return found


@pytest.fixture
def answers(bundle: Bundle) -> Answers:
    """The right ones."""
    return [(index, row.numpy().tobytes()) for index, row in enumerate(outputs_of(bundle))]


def test_right_answers_match_in_any_order(proof: Proof, answers: Answers) -> None:
    assert proof.count == len(answers) == 16
    assert proof.judge(answers[::-1]).verdict == "match"
    assert proof.judge([*answers, *answers]).verdict == "match"


def test_an_answer_that_is_off_by_little_is_found(
    proof: Proof, bundle: Bundle, answers: Answers
) -> None:
    """By a thousandth of one of ten numbers of one sample."""
    row = outputs_of(bundle)[5].clone()
    row[3] *= 1.001
    answers[5] = (5, row.numpy().tobytes())
    found = proof.judge(answers)
    assert found.verdict == "differs"
    assert "5/output/0" in found.reason


def test_another_samples_answer_is_found(proof: Proof, answers: Answers) -> None:
    answers[2] = (2, answers[3][1])
    assert proof.judge(answers).verdict == "differs"


def test_a_missing_answer_is_found(proof: Proof, answers: Answers) -> None:
    found = proof.judge([one for one in answers if one[0] not in (4, 9)])
    assert found.verdict == "differs"
    assert "2 of 16 answers are missing, such as of sample 4, 9" in found.reason


def test_an_answer_that_was_cut_is_found(proof: Proof, answers: Answers) -> None:
    answers[0] = (0, answers[0][1][:-4])
    assert "bytes" in proof.judge(answers).reason


def test_a_later_answer_to_the_same_sample_is_judged_too(proof: Proof, answers: Answers) -> None:
    wrong = (1, answers[2][1])
    assert proof.judge_some([answers[1]]).verdict == "match"
    assert proof.judge_some([answers[1], wrong]).verdict == "differs"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["wrong", "later"])
def test_a_level_with_wrong_answers_is_not_loaded_any_more(
    fault: str, bundle: Bundle, proof: Proof, tmp_path: Path
) -> None:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen")
    place = place_of(tmp_path, most=4, buckets=(1, 4))
    place = place._replace(
        bundle=bundle, samples=proof.count, command=(sys.executable, str(FAULTS), fault)
    )
    with TestedLevel("eager", place, proof) as level:
        level.start()
        level.build()
        level.prove("1 of 1", Silent())
        if fault == "wrong":
            assert not level.is_loaded
        else:
            assert level.is_loaded
            # Thirty answers are judged of some hundreds, of which one in sixteen is wrong.
            runs = [level.run(Run("offline", 2000.0, 0.1, number)) for number in range(1, 4)]
            outcomes = [run.outcome for run in runs if run is not None]
            assert outcomes[-1] == "failed"
    record = level.record()
    assert record.failed
    assert (record.check.verdict == "differs") == (fault == "wrong")
