"""The rule for quantised networks: rounding may decide about an activation, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from golow.check.limits_of_flips import with_limits_of_flips
from golow.check.rule import Reference, check, recheck
from golow.levels.torch.flipped_activations import NEAR, flipped, leave_unrounded
from support.models.quantized_networks import linear, quantized_blocks

# ---------------------------------------------------------------- which activations flip


def flips(x: Tensor, *, each: bool, signed: bool = True) -> Tensor:
    """By how much each activation is another one."""
    layer = linear(torch.eye(x.shape[-1]).int(), signed=signed).double()
    return flipped(layer, x.double(), each=each) - layer.activations(x.double())


def test_only_what_rounding_may_decide_flips() -> None:
    x = torch.tensor([[10.5 + 1e-9, 20.5 - 1e-9, 30.4, -7.5, 40.0]], dtype=torch.float64)
    assert flips(x, each=False).tolist() == [[-1.0, 1.0, 0.0, 1.0, 0.0]]
    far = x + 10 * NEAR * float(x.square().mean().sqrt())
    assert flips(far, each=False).abs().sum() == 0


def test_one_flips_in_each_sample() -> None:
    x = torch.tensor([[3.1, 4.4, 5.0], [1.45, 2.9, 0.2]], dtype=torch.float64)
    assert flips(x, each=True).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


def test_what_is_clipped_on_both_sides_does_not_flip() -> None:
    x = torch.tensor([[300.5, -300.5, -0.5]], dtype=torch.float64)
    assert flips(x, each=True, signed=False).tolist() == [[0.0, 0.0, 0.0]]


def test_zeros_and_nothing_flip_nothing_else() -> None:
    assert flips(torch.zeros(2, 3), each=False).tolist() == [[0.0] * 3] * 2
    assert flips(torch.zeros(0, 3), each=True).shape == (0, 3)


def test_the_unrounded_network_is_another_one() -> None:
    x = torch.randn(2, 3, 9, 9)
    module = quantized_blocks(x).double()
    with torch.no_grad():
        before = module(x.double())
        leave_unrounded(module)
        after = module(x.double())
    assert 1e-4 < float((after - before).norm() / before.norm()) < 0.5


# ---------------------------------------------------------------- limits


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Outputs of size one, off by so much."""
    off = {"exact": 0.0, "eager": 1e-7, "flip": 3e-2, "level": 4e-3, "unrounded": 1e-2}
    found = {}
    for name, error in off.items():
        found[name] = tmp_path / f"{name}.safetensors"
        save_file({"0/output/0": torch.full((4000,), 1 + error).double()}, found[name])
    return found


def test_another_network_never_passes(files: dict[str, Path]) -> None:
    """Not even where flips would explain three times its distance."""
    plain = Reference(files["exact"], files["eager"]).widened([files["flip"]])
    assert check(plain, files["unrounded"]).verdict == "match"
    apart = Reference(files["exact"], files["eager"]).apart(files["unrounded"])
    for reference in (apart, apart.widened([files["flip"]])):
        assert check(reference, files["unrounded"]).verdict == "differs"
        assert check(reference, files["eager"]).verdict == "match"
    assert check(apart, files["level"]).verdict == "differs"
    assert check(apart.widened([files["flip"]]), files["level"]).verdict == "match"


def test_an_eager_as_far_away_is_still_believed(files: dict[str, Path]) -> None:
    apart = Reference(files["exact"], files["flip"]).apart(files["unrounded"])
    assert check(apart, files["flip"]).verdict == "match"


def test_a_race_allows_for_a_flip(files: dict[str, Path]) -> None:
    apart = Reference(files["exact"], files["eager"]).apart(files["unrounded"])
    strict = check(apart, files["eager"])
    wide, note = with_limits_of_flips(strict, apart.widened([files["flip"]]))
    assert wide.verdict == "match"
    assert wide.tensors[0].limit == pytest.approx(5e-3, rel=1e-3)
    assert strict.tensors[0].limit < 1e-4
    assert "cannot see smaller errors" in note
    assert recheck(apart, wide).tensors[0].limit == strict.tensors[0].limit
