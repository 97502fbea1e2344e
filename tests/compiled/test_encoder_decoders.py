"""`golow.compile(generation=...)` of encoder-decoder models: texts from sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import golow
from support.models.encoder_decoders import VOCABULARY, encoder_decoder, whole_pass

pytest.importorskip("transformers")

BATCH, SOURCE, LONGEST = 2, 7, 9


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[golow.Generator]:
    sizes = golow.Generation(longest=LONGEST, batch=BATCH, source=SOURCE)
    cache = tmp_path_factory.mktemp("cache")
    with golow.compile(
        encoder_decoder("t5"), generation=sizes, threads=1, cache=cache, quiet=True
    ) as made:
        yield made


def source(seed: int) -> Tensor:
    return torch.randint(VOCABULARY, (BATCH, SOURCE), generator=torch.Generator().manual_seed(seed))


def require_texts(made: golow.Generator, kind: str, sources: list[Tensor], starts: Tensor) -> None:
    """The texts after these sources are the likeliest tokens of a whole pass, and so are logits."""
    model = encoder_decoder(kind).double()
    count = LONGEST - starts.shape[1]
    for given in sources:
        text = made.generate(given, tokens=count)
        whole = whole_pass(model, given, torch.cat([starts, text], 1))
        after = whole[:, starts.shape[1] - 1 :]
        assert torch.equal(after[:, :-1].argmax(-1), text)
        found = [made.prefill(given).clone()]
        found += [made.decode(text[:, place]).clone() for place in range(count)]
        torch.testing.assert_close(torch.stack(found, 1).double(), after, atol=1e-3, rtol=1e-4)


@pytest.mark.slow
def test_texts_are_those_of_a_whole_pass(compiled: golow.Generator) -> None:
    starts = torch.zeros(BATCH, 1, dtype=torch.int64)
    require_texts(compiled, "t5", [source(0), source(1)], starts)
    assert compiled.positions == [LONGEST, LONGEST]
    assert compiled.counts == (1,)


@pytest.mark.slow
def test_the_encoder_runs_once_for_a_text(compiled: golow.Generator) -> None:
    assert "encoder.block" not in compiled.plan(1)
    kept = 4 * 8 * 4 * 2 * BATCH  # heads, their size, bytes of a number, keys and values
    assert compiled.memory()["cache"] >= kept * (SOURCE + LONGEST)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.zeros(BATCH, SOURCE - 1, dtype=torch.int64), "compiled for"),
        (torch.zeros(BATCH, SOURCE), "not torch.int64"),
        ([torch.zeros(SOURCE, dtype=torch.int64)] * BATCH, "the source is list"),
    ],
)
def test_another_source_is_refused(compiled: golow.Generator, given: Tensor, said: str) -> None:
    with pytest.raises(golow.GolowError, match=said):
        compiled.prefill(given)


@pytest.mark.slow
def test_padding_of_a_source_is_refused(compiled: golow.Generator) -> None:
    mask = torch.ones(BATCH, SOURCE, dtype=torch.int64)
    compiled.prefill(source(0), attention_mask=mask)
    mask[1, -1] = 0
    with pytest.raises(golow.GolowError, match="hides a part of the source"):
        compiled.generate(source(0), tokens=2, attention_mask=mask)


@pytest.mark.slow
def test_a_text_that_is_too_long_is_refused(compiled: golow.Generator) -> None:
    with pytest.raises(golow.GolowError, match="the cache holds 9"):
        compiled.generate(source(0), tokens=LONGEST + 1)


@pytest.mark.slow
def test_speech_becomes_text_after_several_start_tokens(tmp_path: Path) -> None:
    sizes = golow.Generation(longest=LONGEST, batch=BATCH, start=(3, 5, 7))
    made = golow.compile(
        encoder_decoder("whisper"), generation=sizes, threads=1, cache=tmp_path, quiet=True
    )
    torch.manual_seed(0)
    starts = torch.tensor([[3, 5, 7]]).expand(BATCH, -1)
    with made:
        require_texts(made, "whisper", [torch.randn(BATCH, 8, 24) for _ in range(2)], starts)


@pytest.mark.parametrize(
    ("kind", "sizes", "said"),
    [
        ("t5", golow.Generation(longest=8), "reads tokens"),
        ("whisper", golow.Generation(longest=8, source=7), "features of one size"),
        ("whisper", golow.Generation(longest=41), "positions for 40 tokens"),
        ("t5", golow.Generation(longest=2, source=7, start=(1, 2)), "no room"),
        ("t5", golow.Generation(longest=8, source=7, start=(61,)), "not one of the 61 tokens"),
        ("t5", golow.Generation(longest=8, source=-1), "source=-1"),
        ("bart", golow.Generation(longest=8, source=41), "positions for 40 tokens"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    kind: str, sizes: golow.Generation, said: str, tmp_path: Path
) -> None:
    with pytest.raises(golow.GolowError, match=said):
        golow.compile(encoder_decoder(kind), generation=sizes, cache=tmp_path, quiet=True)
