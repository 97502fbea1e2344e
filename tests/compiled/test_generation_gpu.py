"""Compiled models that generate on a GPU: numbers, precisions, streams of the caller, and that
nothing is allocated while text is written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import golow
from golow.levels.direct.cudnn.level import probe
from golow.models.gpt2 import Gpt2, Gpt2Sizes
from golow.records.workload import Precision

if not torch.cuda.is_available() or not probe().available:
    pytest.skip(probe().missing or "torch sees no GPU", allow_module_level=True)

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SIZES = Gpt2Sizes(vocabulary=301, positions=600, width=128, layers=3, heads=4)
GENERATION = golow.Generation(longest=600, batch=2)


def model() -> Gpt2:
    torch.manual_seed(0)
    return Gpt2(SIZES).eval().cuda()


@pytest.fixture(scope="module")
def generator() -> Iterator[golow.Generator]:
    with golow.compile(model(), generation=GENERATION, precision="ieee", quiet=True) as made:
        yield made


def text(length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(SIZES.vocabulary, (2, length), generator=generator).cuda()


def right(ids: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model().double()(ids)[:, -1]
    return logits


def off(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("parts", [[5], [3, 200, 1, 77], [64, 16, 4, 1], [512]])
def test_any_pieces_of_a_text_give_what_the_whole_gives(
    generator: golow.Generator, parts: list[int]
) -> None:
    generator.reset()
    ids, begin = text(600), 0
    for part in parts:
        logits = generator.prefill(ids[:, begin : begin + part])
        begin += part
    assert off(logits, right(ids[:, :begin])) < 1e-4
    for place in range(begin, begin + 20):
        logits = generator.decode(ids[:, place])
    assert off(logits, right(ids[:, : begin + 20])) < 1e-4


@pytest.mark.parametrize("precision", ["default", "bf16"])
def test_other_precisions(precision: Precision) -> None:
    ids = text(90)
    with golow.compile(model(), generation=GENERATION, precision=precision, quiet=True) as made:
        made.prefill(ids[:, :70])
        for place in range(70, 90):
            logits = made.decode(ids[:, place])
        assert off(logits, right(ids)) < (2e-2 if precision == "default" else 6e-2)


def test_likeliest_tokens_are_those_of_the_module(generator: golow.Generator) -> None:
    generator.reset()
    ids = text(40)
    found = generator.generate(ids, tokens=60)
    whole, module = ids, model()
    with torch.no_grad():
        for _ in range(60):
            whole = torch.cat([whole, module(whole)[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, whole[:, 40:])


def test_on_another_stream(generator: golow.Generator) -> None:
    generator.reset()
    ids, stream = text(30), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        generator.prefill(ids[:, :20])
        for place in range(20, 30):
            logits = generator.decode(ids[:, place]).clone()
    stream.synchronize()
    assert off(logits, right(ids)) < 1e-4


def test_nothing_is_allocated_while_text_is_written(generator: golow.Generator) -> None:
    """The driver's figure is that of all processes: where others allocate, one of several texts
    leaves it alone."""
    ids = text(200)

    def allocated() -> tuple[int, int]:
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        return stats["allocation.all.allocated"], torch.cuda.mem_get_info()[0]

    def write() -> None:
        generator.reset()
        generator.prefill(ids[:, :90])
        for place in range(90, 200):
            generator.decode(ids[:, place])

    write()
    seen = [allocated()]
    for _ in range(5):
        write()
        seen.append(allocated())
    assert len({ours for ours, _ in seen}) == 1
    assert any(before == after for before, after in pairwise(seen))
