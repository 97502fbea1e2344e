"""Networks of functions and views, drawn at random."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

# Each makes a tensor from some earlier ones, or gives up.
OF_ONE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "relu": lambda x, k: x.relu(),
    "sigmoid": lambda x, k: x.sigmoid(),
    "scaled": lambda x, k: x * (0.5 + k),
    "exponential": lambda x, k: torch.exp(-x.abs()),
    "turned": lambda x, k: x.movedim(k % x.dim(), -1),
    "swapped": lambda x, k: x.transpose(k % x.dim(), (k // 2) % x.dim()),
    "sliced": lambda x, k: x.narrow(k % x.dim(), k % 2, max(1, x.shape[k % x.dim()] - 1)),
    "stepped": lambda x, k: x[..., ::2],
    "flat": lambda x, k: x.flatten(k % x.dim()),
    "one": lambda x, k: x.narrow(k % x.dim(), 0, 1),
    "repeated": lambda x, k: x.unsqueeze(0).expand(2, *x.shape),
    "doubled": lambda x, k: torch.cat([x, x * 2], k % x.dim()),
    "positive": lambda x, k: torch.where(x > 0, x, x * 0.1),
}
OF_TWO: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "sum": lambda x, y, k: x + y,
    "product": lambda x, y, k: x * y,
    "larger": lambda x, y, k: torch.maximum(x, y),
    "joined": lambda x, y, k: torch.cat([x, y], k % x.dim()),
    "quotient": lambda x, y, k: x / (1 + y.abs()),
}


Step = tuple[str, int, int]


def taken(step: Step, made: list[Tensor]) -> Tensor:
    """The tensor that a step makes."""
    name, k, m = step
    one, other = made[k % len(made)], made[m % len(made)]
    return OF_ONE[name](one, m) if name in OF_ONE else OF_TWO[name](one, other, k)


def fitting(steps: list[Step], x: Tensor) -> list[Step]:
    """Those steps that fit their arguments and stay small."""
    made, found = [x], []
    for step in steps:
        with contextlib.suppress(RuntimeError, IndexError):
            new = taken(step, made)
            if 0 < new.numel() <= 4096 and new.dim() <= 6:
                made.append(new)
                found.append(step)
    return found


class Drawn(nn.Module):
    """A network of functions and views."""

    def __init__(self, steps: list[Step], x: Tensor) -> None:
        super().__init__()
        self.steps = fitting(steps, x)

    def forward(self, x: Tensor) -> list[Tensor]:
        made = [x]
        for step in self.steps:
            made.append(taken(step, made))
        return [made[-1], *made[-3:-1]]


steps_drawn = st.lists(
    st.tuples(st.sampled_from([*OF_ONE, *OF_TWO]), st.integers(0, 11), st.integers(0, 11)),
    min_size=1,
    max_size=12,
)
