"""Several texts of different lengths, which levels generate side by side."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import golow
from golow.check.rounding import FLOAT32
from golow.levels.direct.onednn import level as onednn
from golow.levels.generation.growing import GrowingGpt2
from golow.levels.generation.static import Static
from golow.models.gpt2 import Gpt2
from golow.programs.generation.error_limit import ErrorLimit
from golow.programs.generation.replays import MadeTexts, Replays
from golow.records.errors import GolowError
from golow.report.generation.facts import title, written
from golow.workload.generation.step_modules import step_of
from support.models.text_models import varied_gpt2

TEXTS = ("The sea", "A", "Hello wor")
MODEL: Any = {"tokens": 6, "threads": 1, "seconds": 0.1, "quiet": True}


@pytest.mark.parametrize("kind", ["static", "growing"])
def test_each_text_has_the_logits_of_its_own(kind: str) -> None:
    torch.manual_seed(0)
    model: Gpt2 = varied_gpt2().double().eval()
    texts = [torch.randint(256, (count,)) for count in (9, 4, 1)]
    generator = Static(step_of(model, 3, 20)) if kind == "static" else GrowingGpt2(model)
    with torch.no_grad():
        for _ in range(2):  # the second time after a text of one length
            logits = generator.prefill_apart(texts)
            grown = list(texts)
            for place in range(9, 13):
                expected = torch.stack([model(text[None])[0, -1] for text in grown])
                torch.testing.assert_close(logits, expected, atol=1e-9, rtol=1e-9)
                token = torch.randint(256, (3, 1))
                grown = [torch.cat([text, t]) for text, t in zip(grown, token, strict=True)]
                logits = generator.step(token, place)
            whole = torch.randint(256, (3, 5))
            expected = model(whole)[:, -1]
            torch.testing.assert_close(generator.prefill(whole), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_several_texts_are_proved_timed_and_written() -> None:
    levels = ["eager", "onednn"] if onednn.probe().available else ["eager"]
    result = golow.generate(varied_gpt2(), text=TEXTS, levels=levels, **MODEL)
    (case,) = result.generation.cases
    assert (case.workload.batch, case.workload.lengths) == (3, tuple(map(len, TEXTS)))
    for run in case.runs:
        assert run.verdict == "match", run.reason
        assert run.token is not None
        whole = (run.written, *run.further)
        assert [text[: len(own)] for text, own in zip(whole, TEXTS, strict=True)] == [*TEXTS]
    assert {text for _, text in written(case)} == {
        t for run in case.runs for t in (run.written, *run.further)
    }
    assert "6 tokens after 1 to 9, batch 3" in title(result.generation)
    model = varied_gpt2().eval()
    for own, made in zip(TEXTS, case.runs[0].texts, strict=True):
        ids = torch.tensor([list(own.encode())])
        with torch.no_grad():
            for _ in range(6):
                ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
        assert ids[0, len(own) :].tolist() == [*made]


def test_texts_are_replayed_with_those_of_their_length() -> None:
    asked: list[tuple[int, int]] = []

    class Reference:
        def replay(self, tokens: Any, prompt: int, draws: Any) -> list[list[float]]:
            asked.append((prompt, len(tokens)))
            return [[float(text[0])] * (len(text) - prompt) for text in tokens]

    replays = Replays(Reference(), ErrorLimit(9.0, FLOAT32))  # type: ignore[arg-type]
    made = MadeTexts([[1, 2, 3], [4], [5, 6, 7]], (), ((8,), (8,), (9,)))
    replays.learn([made])
    assert asked == [(1, 1), (3, 2)]
    assert replays.errors(made) == [[1.0], [4.0], [5.0]]


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        (varied_gpt2, {"batch": 2}, "3 texts are a batch of 3"),
        (varied_gpt2, {"text": ("a", "")}, "no token"),
        (varied_gpt2, {"text": ("a", 5)}, "the text is int"),
        (varied_gpt2, {"text": ("a", "b" * 95)}, "positions for"),
    ],
)
def test_texts_without_sense_are_refused(model: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(GolowError, match=said):
        golow.generate(model(), **{**MODEL, "text": TEXTS, **given})
