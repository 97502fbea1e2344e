"""The loss scale with which every level begins in fp16: no step of the check may be left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.levels import ladder
from golow.levels.torch.graph import CapturedProgram
from golow.records.errors import GolowError
from golow.records.workload import Device, Optimizer
from golow.worker.client import Worker
from golow.worker.loss_scale import FIRST_SCALE, settle_loss_scale
from golow.workload.batch import Batch
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.captured_on_cpu import CapturedOnCpu
from support.workers.precisions import in_precision

pytestmark = pytest.mark.usefixtures("forked")

ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
CLASSES, FEATURES = 8, 64
LARGE, SMALL = 64.0, 1.0  # what the first batch consists of, and the second


def steep_bundle(folder: Path, device: Device) -> Bundle:
    """At its start the first batch has gradients that overflow unless the scale is small; a step on
    the second, which has small ones, makes them vanish."""
    module = nn.Linear(FEATURES, CLASSES)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    targets = torch.zeros(4, dtype=torch.int64)
    prepared = prepare(
        Request(
            module,
            torch.ones(4, FEATURES),
            mode="train",
            targets=targets,
            optimizer=Optimizer(learning_rate=1.0, momentum=0.9),
        )
    )
    batches = tuple(Batch((torch.full((4, FEATURES), x),), (targets,)) for x in (LARGE, SMALL))
    workload = msgspec.structs.replace(prepared.workload, batches=len(batches))
    bundle, prepared = write_bundle(prepared._replace(workload=workload, batches=batches), folder)
    assert write_graph(prepared, bundle) == []
    return in_precision(bundle, "fp16", device)


class Scaler:
    """Halves its scale at a step on a batch whose gradients overflow: those of batch i are finite
    up to a scale of limits[i]."""

    def __init__(self, *limits: float) -> None:
        self.limits, self.scale = limits, FIRST_SCALE
        self.skipped: list[bool] = []

    def step(self) -> None:
        limit = self.limits[len(self.skipped) % len(self.limits)]
        self.skipped.append(self.scale > limit)
        self.scale /= 2 if self.skipped[-1] else 1

    def settle(self) -> float:
        return settle_loss_scale(self.step, lambda: self.scale, len(self.limits))


@pytest.mark.parametrize(
    ("limits", "scale"),
    [
        ((2.0**20,), 2.0**15),
        ((2.0**20, 2.0**10), 2.0**9),
        ((2.0**10, 2.0**20, 2.0**4), 2.0**3),
        ((1.0,), 0.5),
    ],
)
def test_the_scale_settles_at_half_of_what_every_batch_takes(
    limits: tuple[float, ...], scale: float
) -> None:
    scaler = Scaler(*limits)
    assert scaler.settle() == scale
    assert not any(scaler.skipped[-len(limits) :])


def test_gradients_that_no_scale_makes_finite() -> None:
    scaler = Scaler(2.0**20, 0.9)
    with pytest.raises(GolowError, match="gradients in fp16 are not finite") as raised:
        scaler.settle()
    assert "bf16" in raised.value.hint
    assert scaler.skipped.count(True) == 17  # from 2^16 to below 1


def momentum() -> Tensor:
    """Of the weights after a step on either batch at a rate of 0, by hand: [classes, features]."""
    gradient = torch.full((CLASSES, FEATURES), 1 / CLASSES)
    gradient[0] -= 1  # the class that is right
    return 0.9 * LARGE * gradient + SMALL * gradient


def require_both_steps(outputs: dict[str, Tensor]) -> None:
    assert outputs["0/gradient/weight"].isfinite().all()
    torch.testing.assert_close(outputs["1/momentum/weight"], momentum(), rtol=1e-2, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("eager", "cpu"),
        ("torchscript", "cpu"),
        ("libtorch", "cpu"),
        *(
            pytest.param(name, "cuda", marks=ON_GPU)
            for name in ("eager", "cudagraph", "compile", "libtorch", "cudnn")
        ),
    ],
)
def test_no_batch_overflows_at_the_start(tmp_path: Path, name: str, device: Device) -> None:
    bundle = steep_bundle(tmp_path / "bundle", device)
    chosen = ladder.choose(name, "train", device)
    if not (found := chosen.level.probe()).available:
        pytest.skip(found.missing)
    launch = chosen.prepare(bundle, tmp_path)
    with Worker(name, launch.command, threads=1, environment=launch.environment) as worker:
        worker.load(bundle.folder)
        worker.outputs([0, 1], 0.0, tmp_path / "outputs")
    require_both_steps(load_file(tmp_path / "outputs"))


@pytest.mark.parametrize(
    ("make", "device"),
    [
        (CapturedOnCpu, "cpu"),
        pytest.param(CapturedProgram, "cuda", marks=ON_GPU),
    ],
)
def test_a_first_step_that_is_skipped_leaves_no_momentum(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], CapturedProgram],
    device: Device,
) -> None:
    """What is in memory is no number here; the step on the first batch overflows at first."""

    def dirty(like: Tensor, **settings: Any) -> Tensor:
        return torch.full_like(like, torch.nan, **settings)

    bundle, program = steep_bundle(tmp_path / "bundle", device), make()
    with monkeypatch.context() as planted:
        planted.setattr(torch, "empty_like", dirty)
        program.load(bundle.folder)
    program.outputs([0, 1], 0.0, tmp_path / "outputs")
    require_both_steps(load_file(tmp_path / "outputs"))
