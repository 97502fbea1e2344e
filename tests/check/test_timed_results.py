"""The judge of results that are timed: what it challenges, and what it finds."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.check.marked_places import choose_spans
from golow.check.timed_results import LARGEST_ERROR, LEAST_MOVED, Limit, Moves, Verifier
from golow.records.comparison import Block, Check, TensorError
from golow.records.workload import Workload
from golow.worker.marking import values_of
from golow.worker.protocol import Challenge
from golow.worker.results import weighted_sum, weights
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.examples import examples

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]


# ---------------------------------------------------------------- commitments


def test_the_weights_are_those_of_the_protocol() -> None:
    """Known values, so that another language can be tested against them; no part repeats."""
    assert weights(0, 4).tolist() == pytest.approx(KNOWN_WEIGHTS, abs=1e-6)
    many = weights(0, 100_000)
    assert abs(many.mean()) < 0.01
    assert many.std() == pytest.approx(1 / math.sqrt(3), rel=0.01)
    np.testing.assert_array_equal(weights(1000, 50), many[1000:1050])
    assert abs(np.corrcoef(many[:-1], many[1:])[0, 1]) < 0.01


KNOWN_WEIGHTS = [-1.0, -0.8594661951, 0.4622401893, 0.6768759489]


@given(st.integers(1, 300), st.integers(0, 299), st.floats(0.01, 100))
@examples(50)
def test_an_error_in_any_element_shows(count: int, place: int, error: float) -> None:
    values = np.linspace(-1, 1, count, dtype=np.float32)
    wrong = values.copy()
    place = 1 + place % count if count > 1 else 0
    wrong[place % count] += np.float32(error)
    moved = weighted_sum([wrong]) - weighted_sum([values])
    assert moved == pytest.approx(error * weights(place % count, 1)[0], rel=1e-2, abs=1e-4)


def test_outputs_are_weighted_in_their_order() -> None:
    one, other = np.ones((2, 3), np.float32), np.full(4, 2, np.int64)
    joined = np.concatenate([one.ravel(), other.astype(np.float32)])
    assert weighted_sum([one, other]) == pytest.approx(weighted_sum([joined]), rel=1e-5)
    assert weighted_sum([one, other]) != pytest.approx(weighted_sum([other, one]), rel=1e-5)


# ---------------------------------------------------------------- the verifier


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.manual_seed(0)
    prepared = prepare(Request(nn.Linear(32, 8), torch.randn(4, 32)))
    return write_bundle(prepared, tmp_path_factory.mktemp("linear") / "bundle")[0]


def verifier(bundle: Bundle, limit: float = 1e-6, **changed: object) -> Verifier:
    """Of the levels eager and level, whose outputs may be off by the limit."""
    item = TensorError(
        name="0/output/0",
        elements=32,
        scale=1.0,
        error=0.0,
        eager_error=0.0,
        limit=limit,
        passed=True,
    )
    check = Check(verdict="match", tensors=(item,))
    checks = {"eager": check, "level": check, **changed}
    return Verifier(bundle.workload, choose_spans(bundle), checks, 0.1, "eager")  # type: ignore[arg-type]


def nobody(challenge: Challenge) -> float | None:
    raise AssertionError("eager is asked for nothing")


def test_a_round_has_one_challenge_for_all_and_no_two_rounds_the_same(bundle: Bundle) -> None:
    subject = verifier(bundle)
    seen = set()
    for number in range(3):
        subject.begin_round(number)
        for attempt in range(2):
            challenge = subject.challenge(attempt)
            assert challenge == subject.challenge(attempt)
            assert challenge is not None
            assert challenge.marks is not None
            seen.add(challenge.marks.seed)
    assert len(seen) == 6
    other = verifier(bundle)
    other.begin_round(0)
    challenge = other.challenge(0)
    assert challenge is not None
    assert challenge.marks is not None
    assert challenge.marks.seed not in seen


def test_marks_lie_in_the_inputs_and_in_their_range(bundle: Bundle) -> None:
    [[span]] = choose_spans(bundle)
    assert (span.input, span.length, span.whole) == (0, 4, False)
    assert 0 <= span.start <= 32 - span.length
    assert -5 < span.low < 0 < span.high < 5


def test_indices_are_marked_with_indices(tmp_path: Path) -> None:
    tokens = torch.randint(0, 50, (4, 12))
    module = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(96, 3))
    written, _ = write_bundle(prepare(Request(module, tokens)), tmp_path / "bundle")
    [spans] = choose_spans(written)
    assert [(span.whole, span.start) for span in spans] == [(True, n) for n in range(12)]
    assert {span.length for span in spans} <= {1, 2}  # an eighth of the columns at the most
    for span in spans:
        for column in range(span.start, span.start + span.length):
            assert tokens[:, column].min() <= span.low < span.high <= tokens[:, column].max()
    subject = Verifier(written.workload, [spans], {}, 0.1, "eager")
    marked = set()
    for number in range(100):
        subject.begin_round(number)
        challenge = subject.challenge(0)
        assert challenge is not None
        assert challenge.marks is not None
        marked.add(challenge.marks.start)
        limits = spans[challenge.marks.start]
        values = values_of(challenge.marks, 4)
        assert set(values.tolist()) == set(range(int(limits.low), int(limits.high) + 1))
    assert marked == set(range(12))


def test_each_input_is_marked_in_some_rounds_and_masks_in_none(tmp_path: Path) -> None:
    """Each column of indices within what it has seen: another number may be no index."""
    columns = torch.stack([torch.tensor([0, 1, 2, 1]), torch.tensor([900, 5, 400, 7])], dim=1)
    mask = torch.tensor([[True, False]] * 2 + [[False, True]] * 2)

    class Mixed(nn.Module):
        def forward(self, x: Tensor, indices: Tensor, mask: Tensor) -> Tensor:
            return x + (indices * mask).sum(1, keepdim=True)

    given = (torch.randn(4, 16), columns, mask)
    written, _ = write_bundle(prepare(Request(Mixed(), given)), tmp_path / "bundle")
    floats, indices = choose_spans(written)
    assert [(span.input, span.length, span.whole) for span in floats] == [(0, 2, False)]
    assert [(span.start, span.low, span.high) for span in indices] == [(0, 0, 2), (1, 5, 900)]
    subject = Verifier(written.workload, (floats, indices), {}, 0.1, "eager")
    marked = set()
    for number in range(60):
        subject.begin_round(number)
        challenge = subject.challenge(0)
        assert challenge is not None
        assert challenge.marks is not None
        marked.add((challenge.marks.input, challenge.marks.start))
    assert marked == {(0, 7), (1, 0), (1, 1)}


def test_results_that_are_eagers_but_for_rounding_pass(bundle: Bundle) -> None:
    subject = verifier(bundle, limit=1e-3)
    subject.begin_round(0)
    eager = tuple(float(n) for n in range(8))
    level = tuple(value + 1e-3 for value in eager)
    assert subject.judge({"eager": (eager,), "level": (level,)}, nobody) == {}


@pytest.mark.parametrize("wrong", [0.5, math.nan, math.inf])
def test_one_wrong_result_refutes_a_level(bundle: Bundle, wrong: float) -> None:
    subject = verifier(bundle)
    subject.begin_round(4)
    eager = tuple(float(n) for n in range(8))
    level = (*eager[:5], eager[5] + wrong, *eager[6:])
    reasons = subject.judge({"eager": (eager,), "level": (level,)}, nobody)
    assert reasons.keys() == {"level"}
    assert "in round 4 of the race the result of iteration 5 is off by" in reasons["level"]


def test_iterations_beyond_eagers_are_repeated_by_eager_now_and_then(bundle: Bundle) -> None:
    """At a cost of one in a hundred of eager's iterations."""
    subject = verifier(bundle)
    asked: list[Challenge] = []

    def evaluate(challenge: Challenge) -> float | None:
        asked.append(challenge)
        return 0.0

    for number in range(400):
        subject.begin_round(number)
        found = {"eager": ((0.0,) * 50,), "level": ((0.0,) * 80,)}
        assert subject.judge(found, evaluate) == {}
    assert 140 < len(asked) < 260
    assert {challenge.first for challenge in asked} <= set(range(50, 80))
    assert all(c.marks is not None and c.marks.previous == 0.0 for c in asked)
    subject.begin_round(500)
    found = {"eager": ((0.0,) * 50,), "level": ((0.0,) * 50 + (9.0,) * 30,)}
    reasons = [subject.judge(found, evaluate) for _ in range(30)]
    assert any("is off by 9" in reason.get("level", "") for reason in reasons)


def test_a_block_repeated_for_contention_has_results_of_its_own(bundle: Bundle) -> None:
    """Eager's of another attempt, with other marks, say nothing of it; those of the same do."""
    subject = verifier(bundle)
    subject.begin_round(0)
    once, again = (1.0,) * 200, (2.0,) * 200
    found = {"eager": (once,), "level": (once, again)}
    assert subject.judge(found, lambda challenge: 2.0) == {}
    assert "is off by 1" in subject.judge(found, lambda challenge: 3.0)["level"]
    found = {"eager": (once, once), "level": (once, again)}
    assert "is off by 1" in subject.judge(found, nobody)["level"]


def test_results_in_another_cell_have_other_marks(bundle: Bundle) -> None:
    """Those behind them are not compared with eager's, which repeats such an iteration at times."""
    subject = verifier(bundle)
    subject.begin_round(0)
    challenge = subject.challenge(0)
    assert challenge is not None
    assert challenge.marks is not None
    width = challenge.marks.chain
    assert width is not None
    edge = 5 * width
    found = {"eager": ((edge * (1 + 1e-9), 0.3),), "level": ((edge * (1 - 1e-9), 0.7),)}
    answers = [subject.judge(found, lambda challenge: 0.7) for _ in range(500)]
    assert answers == [{}] * 500
    answers = [subject.judge(found, lambda challenge: 0.3) for _ in range(2000)]
    assert any("the result of iteration 1 is off" in said.get("level", "") for said in answers)


def test_on_a_gpu_and_in_training_results_are_not_chained(bundle: Bundle) -> None:
    for changed in ({"device": "cuda"}, {"mode": "train"}):
        workload = msgspec.structs.replace(bundle.workload, **changed)
        check = Check(verdict="match")
        subject = Verifier(
            workload, choose_spans(bundle), {"level": check, "eager": check}, 0.1, "eager"
        )
        subject.begin_round(0)
        challenge = subject.challenge(0)
        assert challenge is not None
        assert challenge.marks is not None
        assert challenge.marks.chain is None


def test_a_race_of_trainings_ends_behind_both_kinds_of_blocks(bundle: Bundle) -> None:
    """One that begins with a reset, and one that goes on; what was made since is known."""
    workload = msgspec.structs.replace(bundle.workload, mode="train")
    for size, most in ((1000, 2), (10**9, 6)):
        subject = Verifier(workload, choose_spans(bundle), {}, 0.1, "eager", size)
        blocks: list[Block] = []
        gap = 0
        for number in range(100):
            subject.begin_round(number)
            challenged = subject.challenge(0) is not None
            gap = 0 if challenged else gap + 1
            assert gap <= most
            blocks.append(Block(round=number, position=0, host_ns=(1,) * 10, attempts=2))
            assert subject.may_end({"level": blocks}) == subject.can_verify(blocks) == (gap > 0)
            steps = subject.steps_since_reset(blocks)
            assert [step.iterations for step in steps] == [12] + [24] * gap
            assert [step.challenge is None for step in steps] == [False] + [True] * gap
            if challenged:
                assert steps[0].challenge == subject.challenge(1)


def test_a_level_without_a_block_of_the_last_rounds_is_verified_by_those_it_has(
    bundle: Bundle,
) -> None:
    """There was no time for others. One after a reset alone proves nothing of the others."""
    workload = msgspec.structs.replace(bundle.workload, mode="train")
    subject = Verifier(workload, choose_spans(bundle), {}, 0.1, "eager")
    blocks: list[Block] = []
    resets: list[Challenge] = []
    while len(resets) < 3:
        subject.begin_round(len(blocks))
        challenge = subject.challenge(0)
        resets += [] if challenge is None else [challenge]
        blocks.append(Block(round=len(blocks), position=0, host_ns=(1,) * 10))
    assert len(subject.steps_since_reset(blocks)) == 1
    assert not subject.can_verify(blocks)
    assert not subject.may_end({"last": blocks, "earlier": blocks[:-1]})
    assert subject.may_end({"earlier": blocks[:-1]})
    steps = subject.steps_since_reset(blocks[:-1])
    assert [step.challenge for step in steps] == [resets[1]] + [None] * (len(steps) - 1)
    assert subject.can_verify(blocks[:-1])
    assert not subject.can_verify([])
    again = len(blocks) - 1  # in which no level had a block
    subject.begin_round(again)
    assert subject.challenge(0) is not None


def test_who_did_not_match_is_not_verified(bundle: Bundle) -> None:
    subject = verifier(bundle, level=Check(verdict="differs"))
    subject.begin_round(0)
    found = {"eager": ((1.0,),), "level": ((2.0,),)}
    assert subject.judge(found, nobody) == {}


# ---------------------------------------------------------------- how results move


@given(st.floats(0.0, 1.5), st.floats(0.001, 3.0), st.integers(0, 10_000))
@examples(100)
def test_the_slope_is_known_within_its_error(slope: float, noise: float, seed: int) -> None:
    """Whatever the batches' own results are, and also where rounding is larger than the effect of
    a mark."""
    draw = np.random.default_rng(seed)
    moves = Moves()
    for batch in range(4):
        base = draw.normal(0, 100)
        for _ in range(250):
            move = draw.normal()
            moves.add(batch, base + slope * move + noise * draw.normal(), base + move)
    found, error = moves.slope()
    assert abs(found - slope) < 5 * error
    assert error == pytest.approx(noise / math.sqrt(1000), rel=0.2)


def test_results_that_do_not_move_refute_a_level() -> None:
    draw = np.random.default_rng(0)
    stored, honest, unknown = Moves(), Moves(), Moves()
    for index in range(200):
        move, noise = draw.normal(), draw.normal()
        stored.add(index % 4, 7.0 + 0.3 * noise, 7.0 + move)
        honest.add(index % 4, 7.0 + move + 0.3 * noise, 7.0 + move)
        unknown.add(index % 4, 7.0 + 100 * noise, 7.0 + move)
    assert "move by 0.0" in stored.refute() or "move by -0.0" in stored.refute()
    assert (honest.refute(), unknown.refute(), Moves().refute()) == ("", "", "")
    assert stored.slope()[1] < LARGEST_ERROR < unknown.slope()[1]
    assert stored.slope()[0] < LEAST_MOVED < honest.slope()[0]


def test_moves_that_rounding_explains_refute_nobody() -> None:
    """Outputs of VGG-19 with random weights differ between images by a fifth of TF32's rounding."""
    draw = np.random.default_rng(0)
    honest, stored = Moves(rounding=1.0), Moves(rounding=0.1)
    for index in range(200):
        move = draw.normal()
        honest.add(index % 4, 7.0 + 0.2 * move + draw.normal(), 7.0 + 0.2 * move + draw.normal())
        stored.add(index % 4, 7.0 + 0.1 * draw.normal(), 7.0 + move)
    assert honest.refute() == ""
    assert "when values are written" in stored.refute()


@given(count=st.integers(2, 16), seed=st.integers(0, 10_000))
@examples(300)
def test_losses_with_random_layers_refute_nobody_by_chance(count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    own, other = draw.normal(2.3, 0.2, (2, count))
    limit = Limit(1e-6, 2.3, 1.0)
    assert limit.refute_mean(list(zip(own, other, strict=True)), 0) == ""
    if count == 16:  # as of a step that skips its update, or of one sample
        assert "is off by" in limit.refute_mean(list(zip(own - 2, other, strict=True)), 0)


def test_a_workload_without_markable_inputs_is_verified_without_marks(bundle: Bundle) -> None:
    workload: Workload = bundle.workload
    checks = dict.fromkeys(("level", "eager"), Check(verdict="match"))
    subject = Verifier(workload, (), checks, 0.1, "eager")
    subject.begin_round(0)
    challenge = subject.challenge(0)
    assert challenge is not None
    assert challenge.marks is None
