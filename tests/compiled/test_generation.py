"""Compiled models that generate, at `onednn`: any pieces of a text give what the whole text gives,
what was left behind is not seen, and nothing is built while text is written."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import golow
from golow.levels.called import lowering
from golow.levels.called.generation.chunks import pieces
from golow.levels.direct.onednn.level import probe
from golow.models.gpt2 import Gpt2, Gpt2Sizes
from golow.records.errors import GolowError
from golow.records.text import Sampling
from golow.workload.generation.sampling import choose
from support.examples import examples
from support.models.cached_steps import CachedStep, HeldStep, Sizes, whole_text

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

LONGEST, WORDS = 48, 31
SIZES = Sizes(batch=2, groups=2, sharing=2, width=8, longest=LONGEST, vocabulary=WORDS)


def step() -> CachedStep:
    torch.manual_seed(0)
    return CachedStep(SIZES).eval()


@pytest.fixture(scope="module")
def generator() -> Iterator[golow.Generator]:
    generation = golow.Generation(longest=LONGEST, batch=2, chunk=16)
    with golow.compile(step(), generation=generation, quiet=True) as made:
        yield made


def close(found: Tensor, expected: Tensor, off: float = 2e-5) -> bool:
    return float((found - expected).abs().max()) <= off * float(expected.abs().max())


def text(length: int, seed: int = 0) -> Tensor:
    return torch.randint(WORDS, (2, length), generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- numbers


@examples(40)
@given(parts=st.lists(st.integers(1, 20), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_any_pieces_of_a_text_give_what_the_whole_gives(
    generator: golow.Generator, parts: list[int], seed: int
) -> None:
    generator.reset()
    ids = text(LONGEST, seed)
    for part in parts:
        begin, end = generator.position, min(generator.position + part, LONGEST)
        if begin == end:
            break
        logits = generator.prefill(ids[:, begin:end])
    assert close(logits, whole_text(step(), ids[:, : generator.position]))


def test_tokens_one_by_one_give_what_the_whole_gives(generator: golow.Generator) -> None:
    ids = text(LONGEST)
    generator.reset()
    for place in range(LONGEST):
        given = ids[:, place] if place % 2 else ids[:, place : place + 1]
        assert close(generator.decode(given), whole_text(step(), ids[:, : place + 1]))


def test_rows_of_an_earlier_text_are_not_seen(generator: golow.Generator) -> None:
    generator.reset()
    generator.prefill(text(LONGEST, 1))
    generator.reset()
    ids = text(7, 2)
    assert close(generator.prefill(ids), whole_text(step(), ids))


def test_a_row_that_was_not_written_shows(generator: golow.Generator) -> None:
    """The comparison finds a row of another text, and a position that is off by one."""
    ids, other = text(9), text(9)
    other[:, 3] += 1
    generator.reset()
    generator.prefill(other % WORDS)
    generator.position = 4
    stale = generator.prefill(ids[:, 4:]).clone()
    assert not close(stale, whole_text(step(), ids), 1e-3)
    generator.reset()
    generator.prefill(ids[:, :8])
    generator.position = 7
    assert not close(generator.decode(ids[:, 8]), whole_text(step(), ids), 1e-3)


def test_the_likeliest_tokens_are_written() -> None:
    torch.manual_seed(0)
    sizes = Gpt2Sizes(vocabulary=61, positions=40, width=32, layers=2, heads=2)
    model, ids = Gpt2(sizes).eval(), torch.randint(61, (1, 6))
    generation = golow.Generation(longest=40)
    with golow.compile(model, generation=generation, quiet=True) as made:
        found = made.generate(ids, tokens=30)
        assert made.position == 35
        made.reset()
        assert torch.equal(made.generate(ids, tokens=30), found)
    whole = ids
    with torch.no_grad():
        for _ in range(30):
            whole = torch.cat([whole, model(whole)[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, whole[:, 6:])


def test_drawn_tokens_are_those_of_the_shared_definition(generator: golow.Generator) -> None:
    sampling = Sampling(temperature=0.9, top_k=20, top_p=0.9, seed=3)
    generator.reset()
    found = generator.generate(text(8), 12, temperature=0.9, top_k=20, top_p=0.9, seed=3)
    drawn, whole, module = torch.Generator().manual_seed(3), text(8), step()
    for _ in range(12):
        draws = torch.rand(2, dtype=torch.float64, generator=drawn)
        token = choose(whole_text(module, whole), sampling, draws)
        whole = torch.cat([whole, token[:, None]], 1)
    assert torch.equal(found, whole[:, 8:])


def test_a_text_ends_with_a_stop_and_all_end_together(generator: golow.Generator) -> None:
    generator.reset()
    free = generator.generate(text(8), 20)
    stop = {int(free[0, 3]), int(free[1, 6])}
    ends = [next(k for k, token in enumerate(row) if token in stop) for row in free.tolist()]
    generator.reset()
    found = generator.generate(text(8), 20, stop=stop)
    assert found.shape == (2, max(ends) + 1)
    for row, end in enumerate(ends):
        assert torch.equal(found[row, : end + 1], free[row, : end + 1])
        assert set(found[row, end:].tolist()) == {int(free[row, end])}


def test_tokens_come_as_they_are_known(generator: golow.Generator) -> None:
    generator.reset()
    free = generator.generate(text(8), 9)
    generator.reset()
    came = [(token.clone(), generator.position) for token in generator.stream(text(8), 9)]
    assert torch.equal(torch.stack([token for token, _ in came], 1), free)
    assert [position for _, position in came] == list(range(8, 17))
    assert repr(generator) == "<golow: CachedStep at onednn, 2 texts of up to 48 tokens>"


SENSELESS: list[dict[str, Any]] = [
    {"temperature": -1.0},
    {"top_p": 0.0, "temperature": 1.0},
    {"temperature": "0.8"},
    {"top_p": None, "temperature": 1.0},
    {"stop": 5},
    {"stop": [None]},
    {"seed": -1, "temperature": 1.0},
]


@pytest.mark.parametrize("settings", SENSELESS)
def test_sampling_without_sense_is_refused(
    generator: golow.Generator, settings: dict[str, Any]
) -> None:
    generator.reset()
    with pytest.raises(GolowError, match=r"temperature|top_p|stop=|is not a seed"):
        generator.generate(text(4), 4, **settings)


def test_tokens_behind_a_window_are_not_seen() -> None:
    torch.manual_seed(0)
    model, ids = CachedStep(SIZES, mask="window").eval(), text(40)
    generation = golow.Generation(longest=LONGEST, batch=2, chunk=16)
    with golow.compile(model, generation=generation, quiet=True) as made:
        made.prefill(ids[:, :30])
        for place in range(30, 40):
            logits = made.decode(ids[:, place])
        assert close(logits, whole_text(model, ids))
        assert " cached_attention " in made.plan()


@pytest.mark.parametrize("persistent", [True, False])
def test_caches_that_an_object_holds_are_state(persistent: bool) -> None:
    """As in transformers; a length that every step sets is not."""
    torch.manual_seed(0)
    model, ids = HeldStep(SIZES, persistent).eval(), text(20)
    generation = golow.Generation(longest=LONGEST, batch=2, chunk=4)
    with golow.compile(model, generation=generation, quiet=True) as made:
        made.prefill(ids[:, :14])
        for place in range(14, 20):
            logits = made.decode(ids[:, place])
        assert close(logits, whole_text(model, ids))
        assert made.memory()["cache"] == 2 * model.get_buffer("keys").nbytes
        assert " cached_attention " in made.plan()


@examples(100)
@given(begin=st.integers(0, 90), more=st.integers(1, 200), powers=st.integers(0, 4))
def test_pieces_cover_a_text_and_no_more(begin: int, more: int, powers: int) -> None:
    counts, end, done = [4**k for k in range(powers + 1)], begin + more, begin
    for start, count in pieces(begin, end, counts):
        assert count in counts
        assert 0 <= start <= done < start + count <= end
        done = start + count
    assert done == end


# ---------------------------------------------------------------- one cache, one set of weights


def test_plans_share_weights_and_cache(generator: golow.Generator) -> None:
    held, model = generator.memory(), step()
    weights = sum(item.nbytes for item in model.parameters())
    assert weights <= held["weights"] < 1.1 * weights + 64 * 100
    assert held["cache"] == sum(item.nbytes for item in model.buffers())
    assert generator.counts == (1, 4, 16)
    assert all(" cached_attention " in generator.plan(count) for count in generator.counts)


def test_nothing_is_built_or_allocated_while_text_is_written(
    generator: golow.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from golow.levels.direct.onednn import planning
    from golow.levels.direct.onednn.build import builder
    from golow.levels.direct.onednn.run import shared_weights

    def never(*given: Any, **named: Any) -> None:
        raise AssertionError("built while text is written")

    generator.reset()
    ids = text(LONGEST)
    first = generator.prefill(ids[:, :21])
    monkeypatch.setattr(torch.export, "export", never)
    monkeypatch.setattr(planning, "build_plan", never)
    monkeypatch.setattr(builder.Builder, "build", never)
    monkeypatch.setattr(shared_weights.mmap, "mmap", never)
    generator.reset()
    with torch.profiler.profile(profile_memory=True) as seen:
        generator.prefill(ids[:, :21])
        for place in range(21, LONGEST):
            logits = generator.decode(ids[:, place])
    assert logits.data_ptr() == first.data_ptr()
    assert not [item for item in seen.events() or [] if item.cpu_memory_usage > 0]


def test_a_second_process_captures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphs are kept, and are taken for the same module alone."""
    generation, ids = golow.Generation(longest=LONGEST, batch=2, chunk=4), text(9)
    options: Any = {"generation": generation, "cache": tmp_path, "quiet": True}
    with golow.compile(step(), **options) as made:
        first = made.prefill(ids).clone()
    captured: list[object] = []
    whole = lowering.capture_step

    def counted(*given: Any, **named: Any) -> Any:
        captured.append(given)
        return whole(*given, **named)

    monkeypatch.setattr(lowering, "capture_step", counted)
    with golow.compile(step(), **options) as made:
        assert torch.equal(made.prefill(ids), first)
    assert not captured
    with golow.compile(CachedStep(SIZES, late=1).eval(), **options):
        assert len(captured) == 2


# ---------------------------------------------------------------- what is refused


class NoLogits(CachedStep):
    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        super().forward(tokens, position)
        return tokens.float()[:, :, None]


class Counting(CachedStep):
    """Keeps a number beside its cache."""

    def __init__(self) -> None:
        super().__init__(SIZES)
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        self.get_buffer("calls").add_(1)
        return super().forward(tokens, position)


class Forgetful(nn.Module):
    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        return tokens.float() + position


REFUSED = {
    "training": (lambda: step().train(), {}, "training mode"),
    "no logits": (lambda: NoLogits(SIZES).eval(), {}, "returns logits"),
    "counts": (lambda: Counting().eval(), {}, "changes its buffer calls"),
    "no cache": (lambda: Forgetful().eval(), {}, "keeps no state"),
    "batch": (step, {"batch": 2}, "batch= does not go with generation="),
    "tune": (step, {"tune": True}, "tune=True does not go with"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_compiled_is_refused(why: str) -> None:
    make, options, words = REFUSED[why]
    generation = golow.Generation(longest=LONGEST, batch=2, chunk=1)
    with pytest.raises(GolowError, match=words):
        golow.compile(make(), generation=generation, quiet=True, **options)


@pytest.mark.parametrize(
    "generation", [golow.Generation(1), golow.Generation(8, 0), golow.Generation(8, 1, 0)]
)
def test_settings_without_sense_are_refused(generation: golow.Generation) -> None:
    with pytest.raises(GolowError, match="Generation has"):
        golow.compile(step(), generation=generation, quiet=True)


def test_texts_longer_than_caches_or_positions_are_refused() -> None:
    """A plan would write behind the cache, and read the last position again."""
    longer = golow.Generation(longest=LONGEST + 1, batch=2, chunk=1)
    with pytest.raises(GolowError, match="has 48 rows, and texts have up to 49 tokens"):
        golow.compile(step(), generation=longer, quiet=True)
    model = Gpt2(Gpt2Sizes(vocabulary=WORDS, positions=8, width=8, layers=1, heads=1)).eval()
    with pytest.raises(GolowError, match="Gpt2 has positions for 8 tokens, not 49"):
        golow.compile(model, generation=longer, quiet=True)


def test_a_module_that_differs_from_its_plan_is_refused() -> None:
    class Drifting(CachedStep):
        calls = 0

        def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
            type(self).calls += 1
            return super().forward(tokens, position) * 2.0 ** type(self).calls

    generation = golow.Generation(longest=LONGEST, batch=2, chunk=1)
    with pytest.raises(GolowError, match="do not compute what the module"):
        golow.compile(Drifting(SIZES).eval(), generation=generation, quiet=True)


def test_tokens_that_do_not_fit_are_refused(generator: golow.Generator) -> None:
    generator.reset()
    wrong = {
        "int64": text(3).int(),
        r"not \[2, count\]": text(3)[:1],
        "holds 48": text(LONGEST + 1),
        "include 31, and the model has those from 0 to 30": text(3) + WORDS - int(text(3).max()),
        "include -1,": -torch.ones(2, 3, dtype=torch.int64),
    }
    for words, ids in wrong.items():
        with pytest.raises(GolowError, match=words):
            generator.prefill(ids)
    with pytest.raises(GolowError, match="would have 49"):
        generator.generate(text(40), tokens=10)
    with pytest.raises(GolowError, match="include 99"):
        generator.decode(torch.tensor([99, 0]))
    with pytest.raises(GolowError, match="no plan for 3"):
        generator.plan(3)
    assert generator.position == 0
    with pytest.raises(GolowError, match="copied"):
        copy.deepcopy(generator)


def test_the_module_stays_as_it_is() -> None:
    model = step()
    before = {name: item.clone() for name, item in model.state_dict().items()}
    generation = golow.Generation(longest=LONGEST, batch=2, chunk=1)
    made = golow.compile(model, generation=generation, quiet=True)
    made.prefill(text(5))
    made.close()
    with pytest.raises(GolowError, match="closed"):
        made.decode(text(1))
    assert all(torch.equal(item, before[name]) for name, item in model.state_dict().items())
