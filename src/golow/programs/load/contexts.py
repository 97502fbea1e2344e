"""A level as its users call it, for batches of samples: the result of `golow.compile` for each
bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from golow.compiled.at_level import compile_at_level
from golow.compiled.callable_levels import is_direct, takes_any_size
from golow.compiled.compiled_module import CompiledModule
from golow.compiled.handed_over import HandedOver
from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.sizes import Size, next_size
from golow.levels.called.wanted import Wanted
from golow.levels.torch import bundle as torch_bundle
from golow.levels.torch.compile import allow_cudagraphs_in_this_thread
from golow.lower.capture.module_outputs import leaves_of
from golow.observer import Observer
from golow.programs.load.batcher import Bucket
from golow.programs.load.samples import Cut, Samples
from golow.records.errors import GolowError
from golow.workload.bundle import Bundle

Call = Callable[..., Any]


class Sizes(NamedTuple):
    """Batch sizes that a level is built for, and how many batches run at a time."""

    batches: Sequence[int]
    contexts: int


class LevelContext:
    """One context of a level over the samples of the load test."""

    def __init__(
        self,
        calls: Mapping[Size, Call],
        samples: Samples,
        device: str,
        types: Sequence[torch.dtype],
    ) -> None:
        """calls: the level by batch size and length, which is 0 if samples have one size. types:
        the module's own types of outputs, which every level answers in: in half precision some
        return halves, which would be half of the bytes to send."""
        self._calls, self._samples, self._device = calls, samples, device
        self._types = types
        self._batches = sorted({batch for batch, _ in calls})
        # With one stream for all, contexts would wait for each other's copies.
        self.cuda_stream = torch.cuda.Stream() if device == "cuda" else None  # type: ignore[no-untyped-call]

    @property
    def calls(self) -> list[Call]:
        """The level's callables, one for each size."""
        return list(self._calls.values())

    def group(self, index: int) -> int:
        """The length that a sample runs with."""
        return self._samples.size(index)

    def bucket(self, indices: Sequence[int]) -> Bucket:
        """The sizes that these samples run in."""
        batch, length = self._size(indices)
        tokens = sum(map(self._samples.length, indices))
        return Bucket(batch, max(1, length), tokens)

    def assemble(self, indices: Sequence[int]) -> list[Tensor]:
        """These samples as one batch, on the host, padded to a bucket."""
        return self._samples.batch(indices, self._size(indices))

    def run(self, batch: list[Tensor]) -> list[Tensor]:
        """The outputs, on the host: on a GPU the copies both ways are part of a request."""
        call = self._calls[self._samples.size_of(batch)]
        with torch.cuda.stream(self.cuda_stream):  # nothing without one
            on_device = [item.to(self._device) for item in batch]
            found = leaves_of(call(*on_device))
            return [leaf.to(kind).cpu() for leaf, kind in zip(found, self._types, strict=True)]

    def answers(self, outputs: list[Tensor], indices: Sequence[int]) -> list[bytes]:
        """The rows of all outputs, each cut to the length of its sample: one answer for each."""
        rows = [
            _rows(leaf, [self._samples.cut(place, index) for index in indices])
            for place, leaf in enumerate(outputs)
        ]
        return [b"".join(parts) for parts in zip(*rows, strict=True)]

    def warm_up(self) -> None:
        """Run every size twice, in the thread that will call `run`."""
        allow_cudagraphs_in_this_thread()
        for size in self._calls:
            indices = [index % self._samples.count for index in range(size[0])]
            for _ in range(2):
                self.run(self._samples.batch(indices, size))

    def _size(self, indices: Sequence[int]) -> Size:
        length = max(map(self._samples.size, indices))
        return next_size(len(indices), self._batches), length


def contexts_of(
    level: str,
    bundle: Bundle,
    samples: Samples,
    sizes: Sizes,
    cache: Path | None,
    observer: Observer,
) -> list[LevelContext]:
    """Build a level for these sizes. Raises `GolowError` for a level that cannot run the module, or
    an output without a row for each sample."""
    workload = bundle.workload
    module = torch_bundle.module(bundle).to(workload.device)
    wanted = Wanted(
        level=level, precision=workload.precision, threads=workload.threads, cache=cache
    )
    build = _Build(module, samples, wanted, sizes, observer)
    types = build.types()
    calls = build.direct() if is_direct(level) else build.handed_over()
    return [LevelContext(one, samples, workload.device, types) for one in calls]


class _Build(NamedTuple):
    """A level to build, for all sizes and contexts."""

    module: nn.Module
    samples: Samples
    wanted: Wanted
    sizes: Sizes
    observer: Observer

    @property
    def lengths(self) -> Sequence[int]:
        return self.samples.lengths.sizes if self.samples.lengths is not None else (0,)

    @property
    def every(self) -> list[Size]:
        """All sizes, the largest last."""
        return [(batch, length) for batch in self.sizes.batches for length in self.lengths]

    def types(self) -> list[torch.dtype]:
        """The types of the module's outputs."""
        with torch.inference_mode():
            return [leaf.dtype for leaf in leaves_of(self.module(*self._example(self.every[0])))]

    def direct(self) -> list[dict[Size, Call]]:
        """One plan for each size, with the weights once."""
        wanted = self.wanted._replace(batch=list(self.sizes.batches))
        if self.samples.lengths is not None:
            wanted = wanted._replace(sequence=list(self.lengths))
        example = self._example(self.every[-1])
        compiled = compile_at_level(CompiledModule, self.module, example, wanted, self.observer)
        if not isinstance(compiled, CompiledModule):
            raise TypeError(f"{wanted.level} is not a direct level")
        more = (compiled.context() for _ in range(self.sizes.contexts - 1))
        calls: list[Call] = [compiled, *more]
        return [dict.fromkeys(self.every, call) for call in calls]

    def handed_over(self) -> list[dict[Size, Call]]:
        """The level compiled for each size; once, where its object takes all of them."""
        if takes_any_size(self.wanted.level):
            one = self._built(self.every[-1])
            return [
                {size: one.for_inputs(self._inputs(size)) for size in self.every}
                for _ in range(self.sizes.contexts)
            ]
        made = {size: self._contexts(size) for size in self.every}
        return [
            {size: made[size][number] for size in self.every}
            for number in range(self.sizes.contexts)
        ]

    def _contexts(self, size: Size) -> list[HandedOver]:
        """Contexts over one session, where the runtime has sessions; else one object for each."""
        found = self._built(size).contexts
        while len(found) < self.sizes.contexts:
            found += self._built(size).contexts
        return found

    def _built(self, size: Size) -> HandedOver:
        wanted = self.wanted._replace(contexts=self.sizes.contexts)
        example = self._example(size)
        made = compile_at_level(CompiledModule, self.module, example, wanted, self.observer)
        if not isinstance(made, HandedOver):
            raise TypeError(f"{wanted.level} is a direct level")
        return made

    def _inputs(self, size: Size) -> CallInputs:
        example = self._example(size)
        return CallInputs(self.module, example, None, example[0].device)

    def _example(self, size: Size) -> list[Tensor]:
        """A batch of that size on the module's device, of the longest samples: none is padded."""
        device = next(iter(self.module.state_dict().values()), self.samples.tensors[0]).device
        longest = sorted(range(self.samples.count), key=self.samples.length, reverse=True)
        rows = [longest[place % len(longest)] for place in range(size[0])]
        return [item.to(device) for item in self.samples.batch(rows, size)]


def _rows(leaf: Tensor, cuts: Sequence[Cut]) -> list[memoryview]:
    """The bytes of the first rows of an output, each cut."""
    if leaf.dim() == 0 or leaf.shape[0] < len(cuts):
        raise GolowError(
            f"an output of {tuple(leaf.shape)} has no row for each of {len(cuts)} samples",
            "a load test takes the answers apart along the first axis of every output.",
        )
    plain = leaf.detach()
    if plain.dtype == torch.bfloat16:  # NumPy has no such type; the bytes are the same
        plain = plain.view(torch.int16)
    rows = (row[cut].contiguous().numpy() for row, cut in zip(plain, cuts, strict=False))
    return [row.reshape(-1).view(np.uint8).data for row in rows]
