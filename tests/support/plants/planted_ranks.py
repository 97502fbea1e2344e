"""A worker that is one rank of a training, with one fault in how ranks train together.

``python tests/support/plants/planted_ranks.py FAULT``; faults are `FAULTS`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from golow.levels.torch import ddp
from golow.worker.protocol import LoadReport
from golow.worker.serve import run

Reduced = torch.futures.Future[Tensor]


class Planted(type(ddp.program(""))):  # type: ignore[misc]
    """The level `ddp` as it is."""

    def lower(self, module: Any, inputs: Any) -> Any:
        distributed = super().lower(module, inputs)
        # PyTorch looks at annotations, which a lambda has none of.
        distributed.register_comm_hook(self, lambda own, bucket: own.reduced(bucket))
        return distributed

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        """The bucket's gradients as this rank uses them."""
        return _mean(bucket, lambda mean: mean)

    @property
    def is_second(self) -> bool:
        return bool(self.place.rank == 1)


def _mean(bucket: dist.GradBucket, change: Callable[[Tensor], Tensor]) -> Reduced:
    """The mean of all ranks, changed."""
    kept, ranks = bucket.buffer().clone(), dist.get_world_size()
    reduced = dist.all_reduce(kept, async_op=True).get_future()
    return reduced.then(lambda done: change(done.value()[0] / ranks))  # type: ignore[no-any-return]


class SkipsItsReduction(Planted):
    """The second rank keeps its own gradients."""

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        own = bucket.buffer()
        return _mean(bucket, lambda mean: own if self.is_second else mean)


class ReducesTheSum(Planted):
    """No rank divides by their number."""

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        return _mean(bucket, lambda mean: mean * dist.get_world_size())


class OneBit(Planted):
    """A gradient of the second rank is off by its last bit."""

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        def change(mean: Tensor) -> Tensor:
            if self.is_second:
                mean.view(torch.int32)[0] ^= 1
            return mean

        return _mean(bucket, change)


class SkipsWhileTimed(Planted):
    """Its answers to `outputs` are right."""

    checked = False

    def outputs(self, batches: Any, learning_rate: float, file: Path) -> None:
        self.checked = True
        super().outputs(batches, learning_rate, file)
        self.checked = False

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        own = bucket.buffer()
        return _mean(bucket, lambda mean: own if self.is_second and not self.checked else mean)


class SkipsInTheRace(Planted):
    """The second rank keeps its own gradients in blocks whose inputs are marked."""

    is_marked = False

    @contextmanager
    def marked(self, marks: Any) -> Iterator[Any]:
        self.is_marked = True
        with super().marked(marks) as write:
            yield write
        self.is_marked = False

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        own = bucket.buffer()
        return _mean(bucket, lambda mean: own if self.is_second and self.is_marked else mean)


class SeesTheFirstRanksSamples(Planted):
    """The second rank trains on the samples of the first."""

    def load(self, bundle: Path) -> LoadReport:
        return super().load(bundle.parent.parent if os.environ["GOLOW_RANK"] == "1" else bundle)


class DropsTheSame(Planted):
    """All ranks have one seed."""

    def _set_up(self, workload: Any) -> None:
        super()._set_up(workload)
        torch.manual_seed(workload.seed)


class DiesAtItsStart(Planted):
    """The second rank exits before it answers anything."""

    def __init__(self) -> None:
        if os.environ["GOLOW_RANK"] == "1":
            os._exit(3)
        super().__init__()


class DiesInLoad(Planted):
    """The second rank is killed when it has met the first one."""

    def load(self, bundle: Path) -> LoadReport:
        found = super().load(bundle)
        if self.is_second:
            os.kill(os.getpid(), signal.SIGKILL)
        return found


class HangsInLoad(Planted):
    """The second rank never comes to where the first one waits for it."""

    def load(self, bundle: Path) -> LoadReport:
        if os.environ["GOLOW_RANK"] == "1":
            time.sleep(3600)
        return super().load(bundle)


class Dies(Planted):
    """The second rank is killed in its first step."""

    def iterate(self) -> None:
        if self.is_second:
            os.kill(os.getpid(), signal.SIGKILL)
        super().iterate()


class ComesLate(Planted):
    """The second rank begins each reduction late."""

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        time.sleep(0.05 if self.is_second else 0.0)
        return super().reduced(bucket)


class Hangs(Planted):
    """The second rank never begins its first step."""

    def iterate(self) -> None:
        if self.is_second:
            time.sleep(3600)
        super().iterate()


class InAnEpoch(Planted):
    """Its fault is in the training of epochs from that one on, and nowhere else."""

    faulty_from = 1
    epochs, is_training = 0, False

    def epoch(self, feed: Any, rates: Any) -> list[float]:
        self.epochs += feed.checksum == 0  # an epoch comes in pieces
        self.is_training = self.epochs >= self.faulty_from
        losses: list[float] = super().epoch(feed, rates)
        self.is_training = False
        return losses


class SumsInAnEpoch(InAnEpoch):
    """No rank divides by their number."""

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        factor = dist.get_world_size() if self.is_training else 1
        return _mean(bucket, lambda mean: mean * factor)


class SkipsInAnEpoch(InAnEpoch):
    """The second rank keeps its own gradients."""

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        own = bucket.buffer()
        return _mean(bucket, lambda mean: own if self.is_second and self.is_training else mean)


class SeesTheFirstRanksEpoch(InAnEpoch):
    """The second rank trains on the samples of the first."""

    def epoch(self, feed: Any, rates: Any) -> list[float]:
        if self.is_second:
            sizes = [part.stop - part.start for _, part in feed._parts]
            parts = zip(feed._parts, sizes, strict=True)
            feed._parts = [(r, slice(p.start - size, p.start)) for (r, p), size in parts]
        return super().epoch(feed, rates)


class DiesInAnEpoch(InAnEpoch):
    """The second rank is killed in its second epoch."""

    faulty_from = 2

    def reduced(self, bucket: dist.GradBucket) -> Reduced:
        if self.is_second and self.is_training:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reduced(bucket)


class Refuses(Planted):
    """The second rank raises an error in its first step, for which the first one waits."""

    def iterate(self) -> None:
        if self.is_second:
            raise RuntimeError("planted")
        super().iterate()


FAULTS: dict[str, type[Planted]] = {
    "none": Planted,
    "skips": SkipsItsReduction,
    "sums": ReducesTheSum,
    "one-bit": OneBit,
    "skips-while-timed": SkipsWhileTimed,
    "skips-in-the-race": SkipsInTheRace,
    "same-samples": SeesTheFirstRanksSamples,
    "same-seed": DropsTheSame,
    "dies-at-start": DiesAtItsStart,
    "dies-in-load": DiesInLoad,
    "hangs-in-load": HangsInLoad,
    "dies": Dies,
    "late": ComesLate,
    "hangs": Hangs,
    "refuses": Refuses,
    "sums-in-an-epoch": SumsInAnEpoch,
    "skips-in-an-epoch": SkipsInAnEpoch,
    "same-epoch": SeesTheFirstRanksEpoch,
    "dies-in-an-epoch": DiesInAnEpoch,
}

if __name__ == "__main__":
    run(FAULTS[sys.argv[1]])
