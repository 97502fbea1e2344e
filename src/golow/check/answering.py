"""Test that a model's outputs depend on its inputs: if they hardly do, the check proves little."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from safetensors import safe_open
from torch import Tensor

from golow.check.rule import Reference
from golow.workload.bundle import Bundle

LEAST_SIGNAL = 3.0
"""Outputs depend on the inputs if those of different samples differ by this many times the check's
limit."""


def notes_of_outputs(bundle: Bundle, reference: Reference) -> Iterator[str]:
    """Sentences for the record on what a check of these outputs does not see."""
    yield from filter(None, (not_answering(bundle, reference), _infinite(reference)))


def not_answering(bundle: Bundle, reference: Reference) -> str:
    """A sentence for the record if the outputs of all samples are the same but for what the check
    allows; empty if one output answers, or if all samples are the same."""
    steps, most, words = _steps(reference), 0.0, ""
    names = [name for name in reference.expected if name.startswith("0/output/")]
    if not names:  # whole numbers and truths, which must be equal
        return ""
    with safe_open(reference.file, "pt") as file:
        for name in names:
            outputs = [file.get_tensor(step + name.removeprefix("0/")) for step in steps]
            spread, scale = _spread(outputs), reference.expected[name].scale
            limit = reference.limit(name)
            if spread >= LEAST_SIGNAL * limit:
                return ""
            if scale and spread / limit >= most:
                most = spread / limit
                words = (
                    "the outputs hardly depend on the inputs: those of unlike samples differ by "
                    f"{spread / scale:.1g} of their size, the check allows {limit / scale:.1g}; "
                    "errors in most layers would not show. With trained weights the check sees them"
                )
    return words if _inputs_differ(bundle, len(steps)) else ""


def _infinite(reference: Reference) -> str:
    with safe_open(reference.file, "pt") as file:
        outputs = (name for name in reference.expected if "/output/" in name)
        if not any(bool(file.get_tensor(name).isinf().any()) for name in outputs):
            return ""
    return (
        "some outputs are infinite, where every level must have the same infinity; the sum of such "
        "an output is infinite, too, so that whole results of timed iterations are verified, but "
        "not the result of each one"
    )


def _steps(reference: Reference) -> list[str]:
    return sorted({f"{name.partition('/')[0]}/" for name in reference.expected})


def _spread(batches: list[Tensor]) -> float:
    """Root mean square distance of samples from their mean; of batches, if they have no samples.
    Infinite for outputs whose sizes depend on the inputs."""
    if len({tensor.shape for tensor in batches}) > 1:
        return math.inf
    samples = torch.cat(batches) if batches[0].dim() else torch.stack(batches)
    samples = samples.masked_fill((samples == samples[:1]).all(0), 0.0)  # also equal infinities
    return float((samples - samples.mean(dim=0)).square().mean().sqrt()) if samples.numel() else 0.0


def _inputs_differ(bundle: Bundle, batches: int) -> bool:
    """True if unlike samples went in; what a model draws does not count."""
    count = len(bundle.workload.inputs) - bundle.workload.draws
    with safe_open(bundle.file("batches.safetensors"), "pt") as file:
        for position in range(count):
            inputs = [file.get_tensor(f"{batch}/input/{position}") for batch in range(batches)]
            samples = torch.cat(inputs)
            if not samples.is_complex() and bool((samples != samples[:1]).any()):
                return True
    return False
