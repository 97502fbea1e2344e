"""Step modules that accept a position for each text, so that texts of different lengths can
continue in one batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from golow.workload.generation.step_modules import device_of

TRIED = 5  # tokens of the texts on which a step is tried
NEAR = 1e-3  # of the largest logit, or this many roundings: a wrong position deviates more
ROUNDINGS = 4


def takes_own_positions(step: nn.Module, batch: int, longest: int) -> bool:
    """Return True if the step accepts a position for each text. Tried on short texts: one that is a
    token behind the others must have the same logits as among texts of its own length."""
    length = min(TRIED, longest)
    device, draws = device_of(step), torch.Generator().manual_seed(0)
    text = torch.randint(2, (batch, length), generator=draws).to(device)
    ends = torch.arange(batch, device=device) % 2
    ends = length - ends[:, None]
    begin = torch.zeros((), dtype=torch.int64, device=device)
    with torch.no_grad(), unchanged(step):
        try:
            shorter = step(text[:, : length - 1], begin)
            expected = torch.where(ends == length, step(text, begin), shorter)
            near = max(NEAR, ROUNDINGS * torch.finfo(expected.dtype).eps) * expected.abs().max()
            for count in (1, 2):
                places = ends - count + torch.arange(count, device=device)
                found = step(text.gather(1, places), ends - count)
                off = (found - expected).abs().max()
                if found.shape != expected.shape or not off <= near:
                    return False
        except Exception:  # of a user's module for a single position
            return False
    return True


@contextmanager
def unchanged(step: nn.Module) -> Iterator[None]:
    """Restore the content of buffers afterwards."""
    kept: dict[str, Tensor] = {name: item.clone() for name, item in step.named_buffers()}
    yield
    for name, item in step.named_buffers():
        item.copy_(kept[name])
