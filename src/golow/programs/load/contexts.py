"""A level as its users call it, for batches of samples: what `golow.compile` returns, for each
bucket, and the samples that requests name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.compiled.at_level import compile_at_level
from golow.compiled.callable_levels import is_direct
from golow.compiled.compiled_module import CompiledModule
from golow.compiled.handed_over import HandedOver
from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.wanted import Wanted
from golow.levels.torch import bundle as torch_bundle
from golow.lower.capture.module_outputs import leaves_of
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.workload.bundle import Bundle

Call = Callable[..., Any]
ANY_BATCH = ("eager", "compile")
"""Levels whose object takes batches of any size, as their users call it; they share weights."""


class LevelContext:
    """One context of a level over the samples of the load test."""

    def __init__(self, calls: dict[int, Call], samples: Sequence[Tensor], device: str) -> None:
        """calls: the level by batch size. samples: one tensor for each input of the module, with a
        row for each sample, on the host."""
        self._calls, self._samples, self._device = calls, samples, device

    def bucket(self, size: int) -> int:
        """The smallest batch size that holds so many samples."""
        return min(one for one in self._calls if one >= size)

    def assemble(self, indices: Sequence[int]) -> list[Tensor]:
        """These samples as one batch, on the host; the last one is repeated up to a bucket."""
        padding = self.bucket(len(indices)) - len(indices)
        rows = torch.tensor([*indices, *[indices[-1]] * padding])
        return [item.index_select(0, rows) for item in self._samples]

    def run(self, batch: list[Tensor]) -> list[Tensor]:
        """The outputs, on the host: on a GPU the copies both ways are part of a request."""
        call = self._calls[batch[0].shape[0]]
        on_device = [item.to(self._device) for item in batch]
        return [leaf.cpu() for leaf in leaves_of(call(*on_device))]

    def answers(self, outputs: list[Tensor], size: int) -> list[bytes]:
        """The rows of all outputs, one answer for each sample."""
        rows = [_rows(leaf, size) for leaf in outputs]
        return [b"".join(parts) for parts in zip(*rows, strict=True)]

    def warm_up(self) -> None:
        """Run every bucket twice, so that no request pays for a first call."""
        for bucket in self._calls:
            for _ in range(2):
                indices = [index % len(self._samples[0]) for index in range(bucket)]
                self.answers(self.run(self.assemble(indices)), bucket)


def contexts_of(
    level: str,
    bundle: Bundle,
    buckets: Sequence[int],
    count: int,
    cache: Path | None,
    observer: Observer,
) -> list[LevelContext]:
    """Build a level for these batch sizes, with so many contexts. Raises `GolowError` for a level
    that cannot run the module, or an output without a row for each sample."""
    workload = bundle.workload
    module = torch_bundle.module(bundle).to(workload.device)
    samples = samples_of(bundle)
    wanted = Wanted(
        level=level, precision=workload.precision, threads=workload.threads, cache=cache
    )
    if is_direct(level):
        calls = _direct(module, samples, wanted, buckets, count, observer)
    else:
        calls = _handed_over(module, samples, wanted, buckets, count, observer)
    made = [LevelContext(one, samples, workload.device) for one in calls]
    for one in made:
        one.warm_up()
    return made


def samples_of(bundle: Bundle) -> list[Tensor]:
    """All samples of a bundle: a tensor for each input of the module, with a row for each sample.
    Raises `GolowError` for an input that has none."""
    tensors, workload = torch_bundle.tensors(bundle, "batches"), bundle.workload
    found = []
    for place in range(len(workload.inputs)):
        batches = [tensors[f"{index}/input/{place}"] for index in range(workload.batches)]
        if any(item.dim() == 0 or item.shape[0] != workload.batch for item in batches):
            raise GolowError(
                f"input {place} of {workload.model} has no row for each sample",
                "a load test batches requests along the first axis of every input.",
            )
        found.append(torch.cat(batches))
    return found


def _direct(
    module: nn.Module,
    samples: Sequence[Tensor],
    wanted: Wanted,
    buckets: Sequence[int],
    count: int,
    observer: Observer,
) -> list[dict[int, Call]]:
    """One plan for each bucket, with the weights once."""
    example = _rows_on(module, samples, buckets[-1])
    sized = wanted._replace(batch=list(buckets))
    compiled = compile_at_level(CompiledModule, module, example, sized, observer)
    if not isinstance(compiled, CompiledModule):
        raise TypeError(f"{wanted.level} is not a direct level")
    calls: list[Call] = [compiled, *(compiled.context() for _ in range(count - 1))]
    return [dict.fromkeys(buckets, call) for call in calls]


def _handed_over(
    module: nn.Module,
    samples: Sequence[Tensor],
    wanted: Wanted,
    buckets: Sequence[int],
    count: int,
    observer: Observer,
) -> list[dict[int, Call]]:
    """The level compiled for each bucket; once, where its object takes batches of any size."""

    def built(bucket: int) -> HandedOver:
        example = _rows_on(module, samples, bucket)
        made = compile_at_level(CompiledModule, module, example, wanted, observer)
        if not isinstance(made, HandedOver):
            raise TypeError(f"{wanted.level} is a direct level")
        return made

    def inputs(bucket: int) -> CallInputs:
        example = _rows_on(module, samples, bucket)
        return CallInputs(module, example, None, example[0].device)

    if wanted.level.partition(":")[0] in ANY_BATCH:
        one = built(buckets[-1])
        return [
            {bucket: one.for_inputs(inputs(bucket)) for bucket in buckets} for _ in range(count)
        ]
    return [{bucket: built(bucket) for bucket in buckets} for _ in range(count)]


def _rows_on(module: nn.Module, samples: Sequence[Tensor], size: int) -> list[Tensor]:
    """A batch of that size on the module's device."""
    device = next(iter(module.state_dict().values()), samples[0]).device
    rows = torch.arange(size) % len(samples[0])
    return [item.index_select(0, rows).to(device) for item in samples]


def _rows(leaf: Tensor, size: int) -> list[bytes]:
    """The bytes of each of the first rows of an output."""
    if leaf.dim() == 0 or leaf.shape[0] < size:
        raise GolowError(
            f"an output of {tuple(leaf.shape)} has no row for each of {size} samples",
            "a load test takes the answers apart along the first axis of every output.",
        )
    plain = leaf.detach()
    if plain.dtype == torch.bfloat16:  # NumPy has no such type; the bytes are the same
        plain = plain.view(torch.int16)
    return [row.numpy().tobytes() for row in plain[:size]]
