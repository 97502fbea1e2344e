"""What the check of the outputs can see, as it says itself, against changes that are made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from golow.check.reference import Standard
from golow.levels.torch.layer_response import layer_responses
from golow.levels.torch.program import TorchProgram
from golow.records.comparison import Check
from golow.records.workload import Mode, Precision
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.kept_workers import kept_workers
from support.workers.precisions import in_precision

SIZE = 24


class Branched(nn.Module):
    """Two layers on the way to the output, and one that hardly adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.faint, self.unused = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        return self.second(x) + 1e-2 * self.faint(x)


class Moved(TorchProgram):
    """Eager with one layer's weights moved at random by a share of themselves."""

    def __init__(self, layer: str, share: float) -> None:
        super().__init__()
        self._layer, self._share = layer, share

    def _reset(self) -> None:
        super()._reset()
        weight = self.module.get_parameter(self._layer)
        noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            weight.mul_(1 + self._share * noise.to(weight.dtype))


def test_responses_are_what_moved_weights_do() -> None:
    torch.manual_seed(0)
    module, x = Branched().double(), torch.randn(64, SIZE).double()
    responses = layer_responses(module, lambda: module(x))
    right = module(x)
    assert set(responses) == {f"0/response/0/{n}.weight" for n in ("first", "second", "faint")}
    for key, response in responses.items():
        weight = module.get_parameter(key.split("/")[-1])
        kept, share = weight.detach().clone(), 1e-4
        with torch.no_grad():
            weight.copy_(kept * (1 + share * torch.randn_like(kept)))
            moved = (module(x) - right).square().mean().sqrt() / share
            weight.copy_(kept)
        assert 0.5 < float(response / moved) < 2.0, key
    assert not any(weight.grad is not None for weight in module.parameters())


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    with kept_workers() as kept:
        yield kept.starter()


def bundle(folder: Path, precision: Precision, mode: Mode = "infer") -> Bundle:
    torch.manual_seed(0)
    loss = "mse_loss" if mode == "train" else None
    x = torch.randn(16, SIZE)
    targets = torch.randn(16, SIZE) if mode == "train" else None
    request = Request(Branched(), x, mode=mode, loss=loss, targets=targets)
    made, _ = write_bundle(prepare(request), folder / "bundle")
    return made if precision == "ieee" else in_precision(made, precision)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_in_float32_a_match_is_no_weak_one(tmp_path: Path, starter: object) -> None:
    standard = Standard(bundle(tmp_path, "ieee"), tmp_path, starter)  # type: ignore[arg-type]
    assert standard.power is None


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_what_it_says_it_sees_is_seen_and_half_of_it_is_not(
    tmp_path: Path, starter: object
) -> None:
    given = bundle(tmp_path, "bf16")
    standard = Standard(given, tmp_path, starter)  # type: ignore[arg-type]
    power = standard.power
    assert power is not None and power.weak and power.layer == "faint.weight"
    assert any(note.startswith("match (weak)") and "faint" in note for note in standard.notes)

    def verdict(layer: str, share: float) -> Check:
        program = Moved(layer, share)
        program.load(given.folder)
        return standard.judge(program.outputs).check

    assert verdict(power.layer, power.share / 4).verdict == "match"
    assert verdict(power.layer, power.share * 8).verdict == "differs"
    assert verdict("second.weight", 0.3).verdict == "differs"
    assert Check(verdict="match", power=power).word == "match (weak)"
    assert Check(verdict="differs", power=power).word == "differs"


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_in_training_it_is_the_gradients_that_count(tmp_path: Path, starter: object) -> None:
    standard = Standard(bundle(tmp_path, "ieee", "train"), tmp_path, starter)  # type: ignore[arg-type]
    assert standard.power is None or not standard.power.weak
