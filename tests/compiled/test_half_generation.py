"""Language models in bf16, compiled for a CPU: weights stay bf16, sums are float32."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.models.cached_steps import CachedStep, Sizes, whole_text

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

LONGEST, WORDS = 40, 31
SIZES = Sizes(batch=2, groups=2, sharing=2, width=8, longest=LONGEST, vocabulary=WORDS)
GENERATION = golow.Generation(longest=LONGEST, batch=2, chunk=16)


def step() -> CachedStep:
    torch.manual_seed(0)
    return CachedStep(SIZES).eval().bfloat16()


def off(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def text(length: int) -> Tensor:
    return torch.randint(WORDS, (2, length), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def generator() -> Iterator[golow.Generator]:
    with golow.compile(step(), generation=GENERATION, quiet=True) as made:
        yield made


def test_tokens_one_by_one_are_as_exact_as_in_float32(generator: golow.Generator) -> None:
    generator.reset()
    ids, model = text(LONGEST), step().float()
    for place in range(LONGEST):
        found = generator.decode(ids[:, place])
        assert found.dtype == torch.float32
        assert off(found, whole_text(model, ids[:, : place + 1])) < 2e-5


def test_pieces_are_rounded_at_most_to_bf16(generator: golow.Generator) -> None:
    generator.reset()
    ids = text(LONGEST)
    found = generator.prefill(ids)
    assert off(found, whole_text(step().float(), ids)) < 2e-2


def test_weights_are_held_in_two_bytes(generator: golow.Generator) -> None:
    layers = sum(weight.nbytes for weight in step().parameters() if weight.dim() > 1)
    rest = sum(2 * weight.nbytes for weight in step().parameters() if weight.dim() < 2)
    places = 64 * (len(list(step().parameters())) + 64)  # whole cache lines, and constants
    assert layers <= generator.memory()["weights"] <= layers + rest + places
    assert " narrow_linear " in generator.plan(1)
    assert " linear " not in generator.plan(1) + generator.plan(16)


class Wide(nn.Linear):
    """A layer that stays in float32 where the rest is bf16."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., C] -> [..., K]"""
        return super().forward(x.to(self.weight.dtype))


def test_a_layer_in_float32_stays_so() -> None:
    model, ids = step(), text(5)
    model.head = Wide(model.head.in_features, WORDS).eval()
    generation = golow.Generation(longest=LONGEST, batch=2, chunk=1)
    with golow.compile(model, generation=generation, quiet=True) as made:
        assert off(made.prefill(ids), whole_text(model, ids)) < 2e-5
        assert " linear " in made.plan(1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_types_are_refused(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(GolowError, match=f"in float32, and the module is {name}"):
        golow.compile(step().to(dtype), generation=GENERATION, quiet=True)
