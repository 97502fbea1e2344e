"""Integer and boolean inputs, and outputs of every form, at the levels that start in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import golow
from support.models import forms
from support.models.tiny_models import VOCABULARY, built, inputs_of, loss_of
from support.workers.kept_workers import kept_in_comparisons

pytestmark = pytest.mark.usefixtures("forked")

LEVELS = ["eager", "torchscript", "libtorch"]

# Forms in both modes, and why onednn refuses one in training; all else matches.
IN_TRAINING = {
    forms.ReturnsDataclass: "",
    forms.ReturnsNested: "",
    forms.ReturnsTheSame: "",
    forms.TakesSeveral: "",
    forms.KeepsUnsaved: "",
    forms.CountsUnsaved: "a step changes the buffer steps, which is not in the state dict",
    forms.OverwritesBuffer: "",
    forms.ReadsVersion: "",
    forms.SharesWeights: "",
    forms.SharesBuffers: "",
}
# libtorch's program has what capture has flattened; these build one of their own.
BUILT = (forms.ReturnsNested, forms.CountsUnsaved, forms.OverwritesBuffer)


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


@pytest.fixture(scope="module", autouse=True)
def kept() -> Iterator[None]:
    """The comparisons share their workers."""
    with kept_in_comparisons():
        yield


def verdicts(result: golow.Result) -> dict[str, str]:
    return {run.level: run.check.verdict for run in result.comparison.runs}


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("family", [pytest.param("gnmt", marks=pytest.mark.whole_network), "dlrm"])
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


def first_score(output: object, *targets: Tensor) -> Tensor:
    """A loss for every form."""
    if isinstance(output, Tensor):
        return output.square().mean()
    if isinstance(output, forms.Scores):
        return output.scores.square().mean()
    values = list(output.values()) if isinstance(output, dict) else list(output)  # type: ignore
    return first_score(values[0])


@pytest.mark.slow
@pytest.mark.parametrize("form", IN_TRAINING)
def test_a_training_step_of_every_form(form: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = form()
    levels = [name for name in (*LEVELS, "onednn") if name != "libtorch" or form in BUILT]
    result = golow.compare(
        module,
        forms.inputs_of(module),
        mode="train",
        loss=first_score,
        levels=levels,
        time_limit=0.1,
        threads=1,
        brief=True,
    )
    wanted = dict.fromkeys(levels, "match")
    if IN_TRAINING[form]:
        wanted["onednn"] = "unavailable"
        assert result.run("onednn").check.reason == IN_TRAINING[form]
    assert verdicts(result) == wanted
    # Every worker starts from the same state: eager, too, is only rounding away from float64. If
    # not, its error would be in the limits, and every level would match.
    for tensor in result.run("eager").check.tensors:
        assert tensor.error <= 0.01 * (tensor.zero_scale or tensor.scale), tensor


@pytest.mark.slow
@pytest.mark.parametrize("form", [forms.ReturnsNested, forms.KeepsUnsaved, forms.ReadsVersion])
def test_inference_of_forms(form: type[nn.Module]) -> None:
    """Nested outputs at libtorch are the tagger's, above."""
    torch.manual_seed(0)
    module = form()
    levels = ["eager", "torchscript", "onednn"]
    given = forms.inputs_of(module)
    result = golow.compare(module, given, levels=levels, time_limit=0.1, threads=1, brief=True)
    assert verdicts(result) == dict.fromkeys(levels, "match")


@dataclass
class Kept:
    """A dataclass with a tensor that its constructor does not take."""

    scores: Tensor
    doubled: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.scores


class KeepsMore(nn.Module):
    """Returns it."""

    def forward(self, x: Tensor) -> Kept:
        return Kept(x)


def test_a_dataclass_that_keeps_more_than_its_fields_is_refused() -> None:
    """Registered by its fields, it would lose a tensor without a word."""
    with pytest.raises(golow.GolowError, match="is not a tensor: it contains Kept"):
        golow.compare(KeepsMore(), torch.randn(4, 3), levels=["eager"])
