"""Faults planted into the training of epochs: each is seen by a check of `epochs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from golow.levels.torch import device_feed as torch_feed
from golow.levels.torch import optimizers as torch_optimizers
from golow.levels.torch import state as torch_state
from golow.levels.torch import torchscript
from golow.levels.torch.program import TorchProgram
from golow.records.errors import WorkerFailure
from golow.worker.feed import Fed, Feed
from support.workers import epochs
from support.workers.courses import BATCH, Course, make_course
from support.workers.epochs import InProcess, Students

Check = Callable[[Students], None]
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return make_course(tmp_path_factory.mktemp("faults") / "course")


def in_process(course: Course, make: Callable[[], TorchProgram], tolerance: float) -> Students:
    return Students(course, lambda _: InProcess(make()), tolerance)


class RatesIgnored(TorchProgram):
    """Every batch at the workload's learning rate."""

    def _set_learning_rate(self, rate: float) -> None:
        pass


class FromTheStart(TorchProgram):
    """A piece of an epoch begins with the first batch of the order."""

    def epoch(self, feed: Feed, rates: Any) -> list[float]:
        start = feed._parts[0].start
        feed._parts = [slice(part.start - start, part.stop - start) for part in feed._parts]
        return super().epoch(feed, rates)


class OneRowLate(TorchProgram):
    """Batches are the order's, but for a row."""

    def epoch(self, feed: Feed, rates: Any) -> list[float]:
        feed._parts = [slice(part.start + 1, part.stop + 1) for part in feed._parts]
        return super().epoch(feed, rates)


class ChannelsSwapped(TorchProgram):
    """The first channel is normalised as the last."""

    def epoch(self, feed: Feed, rates: Any) -> list[float]:
        feed.scale, feed.shift = feed.scale[::-1].copy(), feed.shift[::-1].copy()
        return super().epoch(feed, rates)


class LastFilledUp(TorchProgram):
    """The last batch is trained on as if it were whole."""

    def _learn(self, inputs: Any, targets: Any) -> Any:
        rows = torch.arange(BATCH).clamp_max(len(targets[0]) - 1)
        return super()._learn((inputs[0][rows],), (targets[0][rows],))


class MomentumLeftOver(TorchProgram):
    """What is not in a state stays."""

    def _forget(self, optimizer: torch.optim.SGD) -> None:
        pass


def unmoved(patch: Patch) -> None:
    by_right = torch_feed._augment
    patch.setattr(torch_feed, "_augment", lambda x, fed: by_right(x, fed._replace(shifts=None)))


def turned_before_it_is_moved(patch: Patch) -> None:
    by_right = torch_feed._augment

    def wrong(pixels: Tensor, fed: Fed) -> Tensor:
        turned = by_right(pixels, fed._replace(shifts=None))
        return by_right(turned, fed._replace(flips=None))

    patch.setattr(torch_feed, "_augment", wrong)


def rounded_once(patch: Patch) -> None:
    def wrong(feed: Feed, device: torch.device, least: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        scale, shift = (
            torch.from_numpy(a).double()[:, None, None] for a in (feed.scale, feed.shift)
        )
        for fed in feed:
            pixels = torch_feed._augment(torch.from_numpy(fed.pixels), fed)
            yield (pixels * scale + shift).float(), torch.from_numpy(fed.labels)

    patch.setattr(torch_feed, "batches", wrong)


def momentum_not_saved(patch: Patch) -> None:
    read = torch_state.read

    def wrong(*given: Any) -> dict[str, Tensor]:
        return {n: t for n, t in read(*given).items() if not n.startswith("momentum/")}

    patch.setattr(torch_state, "read", wrong)


def momentum_not_restored(patch: Patch) -> None:
    patch.setattr(torch_optimizers, "write", lambda *given: None)


def statistics_not_restored(patch: Patch) -> None:
    restore = TorchProgram.restore

    def wrong(program: TorchProgram, file: Path) -> None:
        own = {name: buffer.clone() for name, buffer in program.module.named_buffers()}
        restore(program, file)
        torch_state.write_unsaved(program.module, own)

    patch.setattr(TorchProgram, "restore", wrong)


def frozen_weights_kept(patch: Patch) -> TorchProgram:
    program = torchscript.program("")
    patch.setattr(type(program), "constant_weights", False)
    return program


def statistics_of_the_batch(patch: Patch) -> None:
    infer = TorchProgram._infer

    def wrong(self: TorchProgram, inputs: tuple[Tensor, ...]) -> Any:
        self.module.train()
        return infer(self, inputs)

    patch.setattr(TorchProgram, "_infer", wrong)


def surplus_not_dropped(patch: Patch) -> None:
    cut = Feed.__init__

    def wrong(self: Feed, *given: Any, **named: Any) -> None:
        cut(self, *given, **named)
        self.sizes = tuple(BATCH for _ in self.sizes)

    patch.setattr(Feed, "__init__", wrong)


Plant = Callable[[Patch], TorchProgram | None]
FAULTS: list[tuple[Plant | type[TorchProgram], Check]] = [
    (RatesIgnored, epochs.trains_as_a_plain_loop_does),
    (ChannelsSwapped, epochs.trains_as_a_plain_loop_does),
    (LastFilledUp, epochs.trains_as_a_plain_loop_does),
    (unmoved, epochs.trains_as_a_plain_loop_does),
    (turned_before_it_is_moved, epochs.trains_as_a_plain_loop_does),
    (OneRowLate, epochs.consumes_what_the_order_names),
    (FromTheStart, epochs.goes_on_from_piece_to_piece),
    (momentum_not_saved, epochs.goes_on_from_a_saved_state),
    (momentum_not_saved, epochs.saves_what_pytorch_loads),
    (momentum_not_restored, epochs.goes_on_from_a_saved_state),
    (statistics_not_restored, epochs.goes_on_from_a_saved_state),
    (MomentumLeftOver, epochs.forgets_momentum_that_a_state_lacks),
    (MomentumLeftOver, epochs.begins_each_run_anew),
    (statistics_not_restored, epochs.begins_each_run_anew),
    (frozen_weights_kept, epochs.predicts_with_the_weights_that_it_is_given),
    (statistics_not_restored, epochs.predicts_with_the_weights_that_it_is_given),
    (statistics_of_the_batch, epochs.predicts_with_the_weights_that_it_is_given),
    (surplus_not_dropped, epochs.predicts_with_the_weights_that_it_is_given),
]


def planted(plant: Plant | type[TorchProgram], patch: Patch) -> TorchProgram:
    if isinstance(plant, type):
        return plant()
    return plant(patch) or TorchProgram()


@pytest.mark.parametrize(
    ("plant", "check"), FAULTS, ids=[f"{p.__name__}-{c.__name__}" for p, c in FAULTS]
)
def test_a_planted_fault_is_seen(
    plant: Plant, check: Check, course: Course, monkeypatch: Patch
) -> None:
    taught = in_process(course, lambda: planted(plant, monkeypatch), 1e-4)
    with pytest.raises((AssertionError, WorkerFailure)) as raised:
        check(taught)
    print(raised.value)


def test_a_rounding_too_few_is_seen(course: Course, monkeypatch: Patch) -> None:
    """By the check to the bit, which eager passes."""
    check = epochs.trains_as_a_plain_loop_does
    check(in_process(course, TorchProgram, 0.0))
    rounded_once(monkeypatch)
    with pytest.raises(AssertionError):
        check(in_process(course, TorchProgram, 0.0))
