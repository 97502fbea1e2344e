"""Outputs with infinities, as masked logits have: a level must have the same ones, and its other
elements are judged by the rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import golow
from golow.check.rule import Reference, check
from golow.records.comparison import Check
from support.records.output_files import output_files

INFINITY = float("inf")
MASKED = (1, 4, 5)


def logits() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(20, 6, generator=generator, dtype=torch.float64)


def masked(values: Tensor, value: float = -INFINITY) -> Tensor:
    found = values.clone()
    found[2, MASKED] = value
    return found


def reference(folder: Path) -> Reference:
    exact, eager = output_files(folder, exact=masked(logits()), eager=masked(logits()).float())
    return Reference(exact, eager)


def judged(folder: Path, level: Tensor) -> Check:
    [file] = output_files(folder, level=level.float())
    return check(reference(folder), file)


def test_the_same_infinities_match(tmp_path: Path) -> None:
    found = judged(tmp_path, masked(logits()) * (1 + 1e-7))
    assert found.verdict == "match"
    [tensor] = found.tensors
    assert (tensor.elements, tensor.infinite) == (120, 3)


def test_the_other_elements_are_judged_as_if_they_were_alone(tmp_path: Path) -> None:
    """Elements without an error do not hide one of the others."""
    level = masked(logits())
    level[7, 3] += 1e-3
    found = judged(tmp_path, level)
    assert found.verdict == "differs"
    assert "times what rounding explains" in found.reason
    finite = masked(logits()).isfinite()
    alone = [tensor[finite] for tensor in (logits(), logits().float(), level.float())]
    exact, eager, own = output_files(tmp_path, exact=alone[0], eager=alone[1], own=alone[2])
    [expected], [tensor] = check(Reference(exact, eager), own).tensors, found.tensors
    assert (tensor.error, tensor.limit) == pytest.approx((expected.error, expected.limit))


def shifted() -> Tensor:
    level = logits()
    level[2, [place + 1 for place in MASKED if place < 5]] = -INFINITY
    return level


def one_more() -> Tensor:
    level = masked(logits())
    level[3, 0] = -INFINITY
    return level


def one_nan() -> Tensor:
    level = masked(logits())
    level[2, 1] = float("nan")
    return level


WRONG = {
    "finite": (masked(logits(), -1e30), r"0/output/0 is -1e\+30, not -inf, at element \[2, 1\]"),
    "the other one": (masked(logits(), INFINITY), r"is inf, not -inf, at element \[2, 1\]"),
    "one place further": (shifted(), r"not -inf, at element \[2, 1\]"),
    "one more": (one_more(), r"is -inf, not .*, at element \[3, 0\]"),
    "not a number": (one_nan(), r"is nan, not -inf, at element \[2, 1\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_infinities_differ(name: str, tmp_path: Path) -> None:
    level, said = WRONG[name]
    found = judged(tmp_path, level)
    assert found.verdict == "differs"
    assert re.search(said, found.reason)


def test_an_infinity_that_eager_does_not_have_proves_nothing(tmp_path: Path) -> None:
    exact, eager = output_files(tmp_path, exact=masked(logits()), eager=masked(logits(), -1e30))
    assert not Reference(exact, eager).finite
    assert check(Reference(exact, eager), exact).verdict == "failed"


def test_an_infinity_that_only_eager_has_is_wrong(tmp_path: Path) -> None:
    exact, eager = output_files(tmp_path, exact=masked(logits()), eager=one_more())
    alone = Reference(exact, eager).alone()
    assert alone.finite
    assert not alone.explains_eager
    assert check(alone, eager).verdict == "differs"


@pytest.mark.parametrize("kind", ["loss/loss", "gradient/weight", "parameter/weight"])
def test_only_outputs_may_be_infinite(kind: str, tmp_path: Path) -> None:
    exact, eager = tmp_path / "exact", tmp_path / "eager"
    for file in (exact, eager):
        save_file({f"0/{kind}": torch.tensor([1.0, -INFINITY])}, file)
    assert not Reference(exact, eager).finite


def test_draws_move_the_finite_elements(tmp_path: Path) -> None:
    start = reference(tmp_path)
    [moved] = output_files(tmp_path, moved=masked(logits()) * 1.01)
    wider = start.widened([moved])
    assert wider.finite
    assert wider.limit("0/output/0") > 10 * start.limit("0/output/0")


class MaskedLogits(nn.Module):
    """Logits of classes of which some are never chosen, and the logarithm of a share of zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("mask", torch.tensor([False, True, False, False, True]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.layer(x).masked_fill(self.mask, -INFINITY)
        return found, found.softmax(-1).log()


@pytest.mark.slow
@pytest.mark.whole_network
@pytest.mark.usefixtures("forked")
def test_masked_logits_are_compared_and_raced() -> None:
    torch.manual_seed(0)
    result = golow.compare(
        MaskedLogits(), torch.randn(8, 6), levels=["eager", "torchscript", "onednn"],
        time_limit=0.1, threads=1, brief=True, quiet=True,
    )  # fmt: skip
    assert [run.check.verdict for run in result.comparison.runs] == ["match"] * 3
    assert all(
        tensor.infinite == 16 for run in result.comparison.runs for tensor in run.check.tensors
    )
    assert any("some outputs are infinite" in note for note in result.comparison.notes)


@pytest.mark.slow
def test_a_compiled_module_has_the_same_infinities() -> None:
    torch.manual_seed(0)
    compiled = golow.compile(MaskedLogits().eval(), torch.randn(8, 6))
    assert compiled.check(torch.randn(8, 6)).matches
