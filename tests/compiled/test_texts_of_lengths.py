"""Compiled models that generate texts of different lengths side by side, at `onednn`: each text
gives what it gives alone, however it is padded and in however many turns it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import golow
from golow.levels.direct.onednn.level import probe
from golow.models.gpt2 import Gpt2, Gpt2Sizes
from golow.records.errors import GolowError
from support.examples import examples
from support.models.cached_steps import CachedStep, Sizes, whole_text

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

LONGEST, WORDS, BATCH = 48, 31, 3
SIZES = Sizes(batch=BATCH, groups=2, sharing=2, width=8, longest=LONGEST, vocabulary=WORDS)


def step(mask: Any = "plain") -> CachedStep:
    torch.manual_seed(0)
    return CachedStep(SIZES, mask=mask).eval()


@pytest.fixture(scope="module")
def generator() -> Iterator[golow.Generator]:
    generation = golow.Generation(longest=LONGEST, batch=BATCH, chunk=16)
    with golow.compile(step(), generation=generation, quiet=True) as made:
        yield made


@pytest.fixture(scope="module")
def gpt2() -> Gpt2:
    torch.manual_seed(0)
    sizes = Gpt2Sizes(vocabulary=61, positions=40, width=32, layers=2, heads=2)
    return Gpt2(sizes).eval()


def texts(*lengths: int, words: int = WORDS, seed: int = 0) -> list[Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return [torch.randint(words, (length,), generator=draws) for length in lengths]


def close(found: Tensor, expected: Tensor) -> bool:
    return float((found - expected).abs().max()) <= 2e-5 * float(expected.abs().max())


def alone(ids: Tensor, mask: Any = "plain") -> Tensor:
    """The logits of a text, in float64."""
    return whole_text(step(mask), ids.expand(BATCH, -1))[0]


@pytest.fixture(scope="module")
def beside(gpt2: Gpt2) -> Iterator[golow.Generator]:
    generation = golow.Generation(longest=40, batch=BATCH, chunk=1)
    with golow.compile(gpt2, generation=generation, quiet=True) as made:
        yield made


def padded(given: list[Tensor], left: bool) -> tuple[Tensor, Tensor]:
    """ids with numbers that mean something in the padding, and their mask."""
    most = max(map(len, given))
    ids, mask = torch.full((len(given), most), 7), torch.zeros(len(given), most, dtype=torch.int64)
    for row, own in enumerate(given):
        part = slice(most - len(own), most) if left else slice(len(own))
        ids[row, part], mask[row, part] = own, 1
    return ids, mask


# ---------------------------------------------------------------- numbers


def test_each_text_is_written_as_alone(gpt2: Gpt2, beside: golow.Generator) -> None:
    given = texts(3, 17, 9, words=61)
    beside.reset()
    found = beside.generate(given, tokens=15)
    assert beside.positions == [17, 31, 23]
    for row, own in enumerate(given):
        whole = own[None]
        with torch.no_grad():
            for _ in range(15):
                whole = torch.cat([whole, gpt2(whole)[:, -1:].argmax(-1)], 1)
        assert torch.equal(found[row], whole[0, len(own) :])


@pytest.mark.parametrize("left", [True, False])
def test_padding_at_either_end_changes_nothing(beside: golow.Generator, left: bool) -> None:
    given = texts(3, 17, 9, words=61)
    ids, mask = padded(given, left)
    beside.reset()
    expected = beside.prefill(given).clone()
    beside.reset()
    assert torch.equal(beside.prefill(ids, mask), expected)
    beside.reset()
    tokens = beside.generate(ids, 4, attention_mask=mask.bool())
    beside.reset()
    assert torch.equal(beside.generate(given, 4), tokens)


@examples(40)
@given(
    turns=st.lists(st.tuples(*[st.integers(1, 20)] * BATCH), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_any_turns_of_any_lengths_give_what_each_text_gives(
    generator: golow.Generator, turns: list[tuple[int, ...]], seed: int
) -> None:
    generator.reset()
    whole, ends = texts(*[LONGEST] * BATCH, seed=seed), [0] * BATCH
    for turn in turns:
        after = [end + more for end, more in zip(ends, turn, strict=True)]
        if max(after) > LONGEST:
            break
        parts = [own[a:b] for own, a, b in zip(whole, ends, after, strict=True)]
        logits, ends = generator.prefill(parts), after
    assert generator.positions == ends
    if max(ends) < LONGEST and max(ends):
        logits = generator.decode(torch.stack([w[e] for w, e in zip(whole, ends, strict=True)]))
        ends = [end + 1 for end in ends]
    for row, end in enumerate(ends):
        if end:
            assert close(logits[row], alone(whole[row][:end]))


def test_a_window_is_that_of_each_text() -> None:
    generation = golow.Generation(longest=LONGEST, batch=BATCH, chunk=1)
    given = texts(4, 30, 11)
    with golow.compile(step("window"), generation=generation, quiet=True) as made:
        made.prefill([own[:-1] for own in given])
        logits = made.decode(torch.stack([own[-1] for own in given]))
        for row, own in enumerate(given):
            assert close(logits[row], alone(own, "window"))


def test_another_position_shows(generator: golow.Generator) -> None:
    """The comparison finds a text that is read a place too late."""
    given = texts(5, 9, 7)
    generator.reset()
    generator.prefill([own[:-1] for own in given])
    generator._behind[0] -= 1
    logits = generator.decode(torch.stack([own[-1] for own in given]))
    assert not close(logits[0], alone(given[0]))
    assert close(logits[1], alone(given[1]))


def test_each_text_ends_with_its_own_stop(generator: golow.Generator) -> None:
    given = texts(8, 3, 12)
    generator.reset()
    free = generator.generate(given, 20)
    stop = {int(free[0, 3]), int(free[1, 6]), int(free[2, 1])}
    ends = [next(k for k, token in enumerate(row) if token in stop) for row in free.tolist()]
    generator.reset()
    found = generator.generate(given, 20, stop=stop)
    assert found.shape == (BATCH, max(ends) + 1)
    for row, end in enumerate(ends):
        assert torch.equal(found[row, : end + 1], free[row, : end + 1])
        assert set(found[row, end:].tolist()) == {int(free[row, end])}


# ---------------------------------------------------------------- what is refused


def test_texts_that_do_not_fit_are_refused(generator: golow.Generator) -> None:
    generator.reset()
    ids, mask = padded(texts(3, 5, 4), left=True)
    mask[1, 2] = 0
    wrong: list[tuple[Any, Any, str]] = [
        (texts(3, 5), None, "not \\[3, count\\]"),
        (texts(3, 0, 4), None, "text 1 has no token"),
        ([], None, "no text"),
        (texts(3, LONGEST + 1, 4), None, "holds 48"),
        (["The sea"], None, "a text is str"),
        ([item.float() for item in texts(1, 2, 3)], None, "float32"),
        (texts(1, 2, 3), torch.ones(3, 3), "does not go with a list"),
        (ids, mask, "hides tokens within text 1"),
        (ids, mask[:2], "attention_mask is \\[2, 5\\]"),
        (ids, torch.zeros_like(ids), "text 0 has no token"),
        (ids[0], None, "give \\[batch, count\\]"),
    ]
    for ids, hidden, words in wrong:
        with pytest.raises(GolowError, match=words):
            generator.prefill(ids, hidden)
    assert generator.positions == [0, 0, 0]


def test_a_step_for_one_position_takes_texts_of_one_length() -> None:
    torch.manual_seed(0)
    model = CachedStep(SIZES, write="put").eval()
    generation = golow.Generation(longest=LONGEST, batch=BATCH, chunk=1)
    with golow.compile(model, generation=generation, quiet=True) as made:
        with pytest.raises(GolowError, match="takes one position for all"):
            made.prefill(texts(3, 5, 4))
        ids = torch.stack(texts(6, 6, 6))
        assert close(made.prefill(ids), whole_text(model, ids))
