"""Integer and boolean inputs, and outputs of every form, at the levels that start in seconds."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from torch import Tensor, nn

import golow
from tiny_models import VOCABULARY, built, inputs_of, loss_of

LEVELS = ["eager", "torchscript", "libtorch"]


class Scores(NamedTuple):
    """A named tuple as output."""

    scores: Tensor
    best: Tensor


class Tagger(nn.Module):
    """Scores and the best class of each token, of a mask, within a dict of a named tuple."""

    def __init__(self, wrong: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.head = nn.Linear(8, 5)
        self.wrong = wrong

    def forward(self, tokens: Tensor, mask: Tensor) -> dict[str, object]:
        scores = self.head(self.embedding(tokens)).masked_fill(~mask[..., None], 0.0)
        best = scores.argmax(2) + self.wrong
        return {"of tokens": Scores(scores, best), "lengths": [mask.sum(1), ~mask]}


def verdicts(result: golow.Result) -> dict[str, str]:
    return {run.level: run.check.verdict for run in result.comparison.runs}


def test_integers_and_masks_in_and_nested_outputs_out() -> None:
    given = inputs_of("bert")[:2]
    result = golow.compare(Tagger(), given, levels=LEVELS, time_limit=0.3, threads=1)
    assert verdicts(result) == dict.fromkeys(LEVELS, "match")
    kinds = [(kind.dtype, kind.shape) for kind in result.comparison.workload.inputs]
    assert kinds == [("int64", (4, 6)), ("bool", (4, 6))]
    tensors = {item.name: item for item in result.run("libtorch").check.tensors}
    assert {name for name in tensors if name.startswith("0/")} == {
        f"0/output/{n}" for n in range(4)
    }
    for position in (1, 2, 3):  # int64, int64 and bool: equal, or wrong
        assert tensors[f"0/output/{position}"].limit == 0


@pytest.mark.parametrize("family", ["gnmt", "dlrm"])
def test_a_training_step_with_several_inputs(family: str) -> None:
    result = golow.compare(
        built(family),
        inputs_of(family),
        mode="train",
        loss=loss_of(family),
        levels=LEVELS,
        time_limit=0.3,
        threads=1,
    )
    assert verdicts(result) == dict.fromkeys(LEVELS, "match")
