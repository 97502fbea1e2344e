"""The samples that requests refer to: the rows of the workload's batches, all of one size or, as
texts, each cut to its own length."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from golow.levels.called.length_padding import require_harmless_padding
from golow.levels.called.sizes import Size, next_size
from golow.levels.called.text_inputs import TextInputs
from golow.levels.torch import bundle as torch_bundle
from golow.programs.load.lengths import Lengths
from golow.records.errors import GolowError
from golow.workload.bundle import Bundle

Cut = tuple[slice, ...]


class Samples:
    """All samples of a load test, on the host.

    tensors: one for each input of the module, with a row for each sample, zero after its length.
    """

    def __init__(self, tensors: Sequence[Tensor], lengths: Lengths | None = None) -> None:
        self.tensors, self.lengths = list(tensors), lengths
        self.count = len(self.tensors[0])
        if lengths is not None:
            own = torch.tensor(lengths.samples)
            self.tensors = [
                _zeroed(item, own) if is_long else item
                for item, is_long in zip(self.tensors, lengths.inputs, strict=True)
            ]

    def length(self, index: int) -> int:
        """Tokens of a sample; 1 if samples have one size."""
        return self.lengths.samples[index] if self.lengths is not None else 1

    def size(self, index: int) -> int:
        """The length that a sample runs with; 0 if samples have one size."""
        if self.lengths is None:
            return 0
        return next_size(self.lengths.samples[index], self.lengths.sizes)

    def size_of(self, batch: Sequence[Tensor]) -> Size:
        """The size of a batch of samples."""
        texts = (item for item, is_long in zip(batch, self._are_long, strict=True) if is_long)
        first = next(texts, None)
        return (len(batch[0]), 0 if first is None else first.shape[1])

    def cut(self, output: int, index: int) -> Cut:
        """The part of a row of an output that belongs to a sample."""
        if self.lengths is None:
            return ()
        axes = self.lengths.outputs[output]
        own = slice(self.lengths.samples[index])
        return tuple(
            own if axis in axes else slice(None) for axis in range(1, max(axes, default=0) + 1)
        )

    def batch(self, indices: Sequence[int], size: Size) -> list[Tensor]:
        """These samples at that size: the last one is repeated up to the batch, and zeros stand
        after a text."""
        rows = torch.tensor([*indices, *[indices[-1]] * (size[0] - len(indices))])
        return [
            item.index_select(0, rows)[:, : size[1]].contiguous()
            if is_long
            else item.index_select(0, rows)
            for item, is_long in zip(self.tensors, self._are_long, strict=True)
        ]

    def alone(self, index: int) -> list[Tensor]:
        """One sample as a batch of one, at its own length."""
        return self.batch([index], (1, self.length(index)))

    @property
    def _are_long(self) -> Sequence[bool]:
        return self.lengths.inputs if self.lengths is not None else [False] * len(self.tensors)


def samples_of(bundle: Bundle, lengths: Lengths | None = None) -> Samples:
    """The samples of a bundle. Raises `GolowError` for an input that has no row for each."""
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
    return Samples(found, lengths)


def drawn_lengths(
    bundle: Bundle, limits: tuple[int, int], sizes: Sequence[int], seed: int
) -> Lengths:
    """Draw a length for each sample of a bundle, evenly between the limits. Raises `GolowError` for
    a module that mixes padding into tokens, and for samples that are not as long as the longest."""
    module: nn.Module = torch_bundle.module(bundle)
    samples = samples_of(bundle)
    first = [item[: bundle.workload.batch] for item in samples.tensors]
    inputs = TextInputs(module, first, [bundle.workload.batch], list(sizes), first[0].device)
    if inputs.length != limits[1]:
        raise GolowError(
            f"samples have {inputs.length} tokens, not {limits[1]}, the longest that was asked for",
            f"give an example of {limits[1]} tokens, which is cut to shorter ones.",
        )
    outputs = require_harmless_padding(module, inputs)
    draw = random.Random(seed)  # noqa: S311 - lengths, not secrets
    return Lengths(
        sizes=tuple(sizes),
        samples=tuple(draw.randint(*limits) for _ in range(samples.count)),
        inputs=inputs.is_long,
        outputs=tuple(outputs),
    )


def _zeroed(item: Tensor, lengths: Tensor) -> Tensor:
    """The rows with zeros, false if they are of bool, after these lengths."""
    own = torch.arange(item.shape[1]) < lengths[:, None]
    return torch.where(own.reshape(*own.shape, *[1] * (item.dim() - 2)), item, item.new_zeros(()))
