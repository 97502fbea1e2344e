"""The proof of a level under load: all answers of LoadGen's accuracy mode against float64, by
golow's rule, each sample by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from golow.compiled.checking import CallReference
from golow.levels.torch import bundle as torch_bundle
from golow.lower.capture.module_outputs import leaves_of
from golow.programs.load.lengths import Lengths
from golow.programs.load.missing_answers import missing
from golow.programs.load.samples import Samples, samples_of
from golow.records.comparison import Check
from golow.records.errors import GolowError
from golow.records.workload import Precision, Workload
from golow.workload.bundle import Bundle

TIE = 1e-5  # of the largest element: classes whose elements are as near may be taken for each other


class _Arithmetic(NamedTuple):
    """Where the reference is computed, and what eager's precision is."""

    device: torch.device
    precision: Precision


class Proof:
    """The reference for every sample, and the check of answers."""

    def __init__(self, bundle: Bundle, folder: Path, lengths: Lengths | None = None) -> None:
        """folder: for files, as long as this is used. lengths: of the samples, each of which is
        then computed alone. Raises `GolowError` for an output that has no row for each sample."""
        workload = bundle.workload
        module = torch_bundle.module(bundle).to(workload.device)
        samples = samples_of(bundle, lengths)
        self.count = samples.count
        batches = [
            [item.to(workload.device) for item in batch]
            for batch in _batches(samples, workload.batch)
        ]
        first = [item[: workload.batch].to(workload.device) for item in samples.tensors]
        _require_rows(module, first, workload)
        arithmetic = _Arithmetic(torch.device(workload.device), workload.precision)
        state = module.state_dict()
        self._reference = CallReference(module, state, batches, arithmetic, folder, rows=True)
        self._exact = self._reference.named_exact
        with torch.inference_mode():
            plain = leaves_of(module(*batches[0]))
        # In half precision a level may give its outputs in either type.
        self._types = [[leaf.dtype for leaf in of] for of in (self._reference.eager, plain)]

    def judge(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """The verdict on answers, by the index of their sample: none may be missing or wrong. All
        answers to one sample are checked."""
        return missing(answers, self.count) or self.judge_some(answers)

    def judge_some(self, answers: Sequence[tuple[int, bytes]], places: int | None = None) -> Check:
        """The verdict on these answers alone. places: how many of the outputs they have, the first
        ones; None is all."""
        found = Check(verdict="match")
        for turn in _turns(answers):
            found = self._judged(turn, places)
            if found.verdict != "match":
                return found
        return found

    def classes_of(self, index: int) -> list[int]:
        """The largest elements of the first output for a sample, in float64, and those that float32
        cannot tell from it."""
        row = self._exact[f"{index}/output/0"].flatten()
        largest = row.max()
        tied = (largest - row <= TIE * row.abs().max()).nonzero().flatten().tolist()
        first = int(row.argmax())
        return [first, *(one for one in tied if one != first)]

    def _judged(self, answers: Mapping[int, bytes], places: int | None) -> Check:
        """The verdict on at most one answer to each sample; the exact result stands for the
        others."""
        tensors = dict(self._exact)
        for index, content in answers.items():
            shapes = self._shapes(index)[:places]
            forms = [types[:places] for types in self._types]
            types = next((one for one in forms if _bytes(one, shapes) == len(content)), None)
            if types is None:
                wanted = _bytes(forms[0], shapes)
                reason = f"the answer to sample {index} has {len(content)} bytes, not {wanted}"
                return Check(verdict="differs", reason=reason)
            for place, tensor in enumerate(_read(content, types, shapes)):
                tensors[f"{index}/output/{place}"] = tensor
        return self._reference.judge(tensors)

    def _shapes(self, index: int) -> list[torch.Size]:
        """The shapes of the outputs for a sample."""
        places = range(len(self._types[0]))
        return [self._exact[f"{index}/output/{place}"].shape for place in places]


def _batches(samples: Samples, size: int) -> list[list[Tensor]]:
    """All samples in order: in batches of that size, or each alone if they differ in length."""
    if samples.lengths is not None:
        return [samples.alone(index) for index in range(samples.count)]
    starts = range(0, samples.count, size)
    return [[item[start : start + size] for item in samples.tensors] for start in starts]


def _bytes(types: Sequence[torch.dtype], shapes: Sequence[torch.Size]) -> int:
    return sum(one.itemsize * shape.numel() for one, shape in zip(types, shapes, strict=True))


def _read(
    content: bytes, types: Sequence[torch.dtype], shapes: Sequence[torch.Size]
) -> Iterator[Tensor]:
    """The tensors of an answer, of these types and shapes."""
    place = 0
    for dtype, shape in zip(types, shapes, strict=True):
        count = dtype.itemsize * shape.numel()
        data = bytearray(content[place : place + count])
        place += count
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        yield flat.reshape(shape)


def _turns(answers: Sequence[tuple[int, bytes]]) -> Iterator[dict[int, bytes]]:
    """The answers, in groups with at most one to each sample."""
    left = list(answers)
    while left:
        turn: dict[int, bytes] = {}
        again = []
        for index, content in left:
            if index in turn:
                again.append((index, content))
            else:
                turn[index] = content
        yield turn
        left = again


def _require_rows(module: nn.Module, inputs: Sequence[Tensor], workload: Workload) -> None:
    """Raise `GolowError` for an output that cannot be split into samples."""
    with torch.inference_mode():
        found = leaves_of(module(*[item.clone() for item in inputs]))
    for place, leaf in enumerate(found):
        if leaf.dim() == 0 or leaf.shape[0] != workload.batch:
            raise GolowError(
                f"output {place} of {workload.model} has no row for each sample",
                "a load test takes answers apart along the first axis of every output.",
            )
