"""Targets that fit a model's output and its loss, where the user gives none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError
from golow.workload.batch import Batch
from golow.workload.losses import named_loss

# The dimension of the output that holds one score per class, of losses that take class indices.
CLASSES = {"cross_entropy": 1, "nll_loss": 1, "token_cross_entropy": -1}
YES_OR_NO = ("binary_cross_entropy", "binary_cross_entropy_with_logits")


def fit_targets(
    batches: tuple[Batch, ...], output: Any, loss: str, seed: int, *, callers: bool
) -> tuple[Batch, ...]:
    """The batches with targets that the loss takes.

    The images' labels where they fit, otherwise seeded random targets: classes, zeros and ones, or
    numbers. callers: the inputs are the caller's, whose own targets stay as they are, and whose
    own loss may need none.
    """
    if loss == "own_loss":  # its labels are inputs
        return tuple(Batch(batch.inputs) for batch in batches)
    if callers and (batches[0].targets or named_loss(loss) is None):
        return batches
    generator = Generator().manual_seed(seed)
    return tuple(Batch(batch.inputs, _targets(batch, output, loss, generator)) for batch in batches)


def _targets(batch: Batch, output: Any, loss: str, generator: Generator) -> tuple[Tensor, ...]:
    outputs: list[Tensor] = leaves_of(output)
    first = outputs[0]
    if loss in CLASSES:
        return (_classes(batch, first, loss, generator),)
    if loss in YES_OR_NO:
        return (torch.randint(2, first.shape, generator=generator).to(first.dtype),)
    wanted = outputs if loss == "mse_of_outputs" else outputs[:1]
    return tuple(torch.randn(leaf.shape, generator=generator) for leaf in wanted)


def _classes(batch: Batch, output: Tensor, loss: str, generator: Generator) -> Tensor:
    if output.dim() < 2:
        raise GolowError(
            f"{loss} needs one score per class, but the model's output has the shape "
            f"{tuple(output.shape)}",
            "name another loss: --loss mse_loss.",
        )
    if batch.targets and output.dim() == 2:
        return batch.targets[0] % output.shape[1]
    shape = list(output.shape)
    classes = shape.pop(CLASSES[loss])
    return torch.randint(classes, shape, generator=generator)
