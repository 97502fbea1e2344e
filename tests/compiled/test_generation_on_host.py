"""Compiled models that generate on a GPU, whose memory, streams and graphs stand on the host: any
pieces of a text give what the whole text gives, from one cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import golow
from golow.records.workload import Precision
from support.direct.steps_on_host import generation_on_host
from support.models.cached_steps import CachedStep, HeldStep, Sizes, whole_text

pytestmark = pytest.mark.slow

LONGEST, WORDS = 70, 31
SIZES = Sizes(batch=2, groups=2, sharing=2, width=8, longest=LONGEST, vocabulary=WORDS)
GENERATION = golow.Generation(longest=LONGEST, batch=2, chunk=4)


def step() -> CachedStep:
    torch.manual_seed(0)
    return CachedStep(SIZES).eval()


@pytest.fixture(scope="module")
def generator() -> Iterator[golow.Generator]:
    with generation_on_host(), golow.compile(step(), generation=GENERATION, quiet=True) as made:
        yield made


def close(found: Tensor, expected: Tensor, off: float = 2e-5) -> bool:
    return float((found - expected).abs().max()) <= off * float(expected.abs().max())


def text(length: int, seed: int = 0) -> Tensor:
    return torch.randint(WORDS, (2, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("parts", [[5], [1, 1, 1], [3, 4, 7], [4, 1, 9, 50]])
def test_any_pieces_of_a_text_give_what_the_whole_gives(
    generator: golow.Generator, parts: list[int]
) -> None:
    generator.reset()
    ids, begin = text(LONGEST), 0
    for part in parts:
        logits = generator.prefill(ids[:, begin : begin + part])
        begin += part
    assert close(logits, whole_text(step(), ids[:, :begin]))
    assert close(generator.decode(ids[:, begin]), whole_text(step(), ids[:, : begin + 1]))


def test_a_row_of_another_text_is_seen_by_the_comparison(generator: golow.Generator) -> None:
    generator.reset()
    ids, other = text(9), text(9)
    other[:, 3] = (other[:, 3] + 1) % WORDS
    generator.prefill(other)
    generator.position = 4
    assert not close(generator.prefill(ids[:, 4:]), whole_text(step(), ids), 1e-3)


def test_plans_share_weights_and_cache(generator: golow.Generator) -> None:
    held, model = generator.memory(), step()
    assert held["cache"] == sum(item.nbytes for item in model.buffers())
    assert " cached_attention " in generator.plan(1)
    assert " cached_attention " in generator.plan(4)


@pytest.mark.parametrize("precision", ["ieee", "bf16"])
def test_caches_that_an_object_holds_are_state(precision: Precision) -> None:
    torch.manual_seed(0)
    model, ids = HeldStep(SIZES).eval(), text(12)
    with generation_on_host(precision):
        made = golow.compile(model, generation=GENERATION, quiet=True)
        made.prefill(ids[:, :10])
        logits = [made.decode(ids[:, place]) for place in (10, 11)][-1]
        off = 2e-5 if precision == "ieee" else 3e-2
        assert close(logits, whole_text(model, ids), off)
        item = 4 if precision == "ieee" else 2
        assert made.memory()["cache"] == 2 * model.get_buffer("keys").numel() * item
        made.close()


def test_the_device_chooses_the_likeliest_tokens_itself(generator: golow.Generator) -> None:
    generator.reset()
    ids, model = text(5), step()
    found = generator.generate(ids, tokens=20)
    generator.reset()
    again = [token.clone() for token in generator.stream(ids, tokens=20)]
    assert torch.equal(found, torch.stack(again, 1))
    assert generator.position == 5 + 19
    whole = ids
    for _ in range(20):
        whole = torch.cat([whole, whole_text(model, whole).argmax(-1, keepdim=True)], 1)
    assert torch.equal(found, whole[:, 5:])
    # What the device wrote is the text: it goes on as if it had been given.
    more = generator.generate(found[:, -1:], tokens=3)
    generator.reset()
    assert torch.equal(more, generator.generate(whole, tokens=3))
    generator.reset()
    assert generator.generate(text(LONGEST), tokens=1).shape == (2, 1)
    generator.reset()
    assert generator.generate(text(LONGEST - 9), tokens=10).shape == (2, 10)
