"""Programs that write in place into views of views, drawn as numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Step = tuple[int, int, int, int]  # which tensor, which operation, and two numbers for it


def selected(t: Tensor, a: int, b: int) -> Tensor:
    axis = a % t.dim()
    return t.select(axis, b % t.shape[axis] - (t.shape[axis] if a > 4 else 0))


def sliced(t: Tensor, a: int, b: int) -> Tensor:
    axis = a % t.dim()
    start = b % t.shape[axis]
    return t[(slice(None),) * axis + (slice(start, None, 1 + a % 3),)]


def narrowed(t: Tensor, a: int, b: int) -> Tensor:
    axis = a % t.dim()
    start = b % t.shape[axis]
    return t.narrow(axis, start, max(1, (t.shape[axis] - start) // 2))


def transposed(t: Tensor, a: int, b: int) -> Tensor:
    return t.transpose(a % t.dim(), b % t.dim())


def permuted(t: Tensor, a: int, b: int) -> Tensor:
    axes = list(range(t.dim()))
    return t.permute(axes[a % t.dim() :] + axes[: a % t.dim()])


def moved(t: Tensor, a: int, b: int) -> Tensor:
    return t.movedim(a % t.dim(), b % t.dim())


def turned(t: Tensor, a: int, b: int) -> Tensor:
    return t.t() if t.dim() == 2 else t.mT if t.dim() > 2 else t[:]


def flat(t: Tensor, a: int, b: int) -> Tensor:
    """A view of contiguous elements, else mostly a copy."""
    return t.view(-1) if t.is_contiguous() else t.reshape(-1)


def in_rows(t: Tensor, a: int, b: int) -> Tensor:
    size = t.numel()
    rows = next(n for n in (2, 3, 5, 1) if size % n == 0)
    return t.reshape(rows, size // rows)


def split_axis(t: Tensor, a: int, b: int) -> Tensor:
    axis = a % t.dim()
    return t.unflatten(axis, (t.shape[axis], 1))


def with_an_axis(t: Tensor, a: int, b: int) -> Tensor:
    return t.unsqueeze(a % (t.dim() + 1))


def without_axes(t: Tensor, a: int, b: int) -> Tensor:
    return t.squeeze()


def diagonal(t: Tensor, a: int, b: int) -> Tensor:
    return t.diagonal(0, a % t.dim(), b % t.dim()) if a % t.dim() != b % t.dim() else t.detach()


def chunk(t: Tensor, a: int, b: int) -> Tensor:
    parts = t.chunk(2, a % t.dim())
    return parts[b % len(parts)]


def split(t: Tensor, a: int, b: int) -> Tensor:
    axis = a % t.dim()
    parts = t.split(2, axis) if b % 2 else t.split([1, t.shape[axis] - 1], axis)
    return parts[0] if parts[-1].numel() == 0 else parts[-1]


def unbound(t: Tensor, a: int, b: int) -> Tensor:
    parts = t.unbind(a % t.dim())
    return parts[b % len(parts)]


def strided(t: Tensor, a: int, b: int) -> Tensor:
    """Every second element of what is left of the memory, at most two rows of two."""
    return t.as_strided((2,), (1 + a % 2,)) if t.numel() > 4 and t.is_contiguous() else t.detach()


def same(t: Tensor, a: int, b: int) -> Tensor:
    """Views that may be the tensor itself."""
    kinds = (t.contiguous, t.detach, lambda: t.to(t.dtype), lambda: t.expand_as(t))
    return kinds[a % len(kinds)]()


def cloned(t: Tensor, a: int, b: int) -> Tensor:
    return t.clone()


VIEWS: tuple[Callable[[Tensor, int, int], Tensor], ...] = (
    selected, sliced, narrowed, transposed, permuted, moved, turned, flat, in_rows, split_axis,
    with_an_axis, without_axes, diagonal, chunk, split, unbound, strided, same, cloned,
)  # fmt: skip


def write(t: Tensor, other: Tensor, a: int, b: int) -> None:
    """Write into a tensor; also with what the other tensor holds now."""
    number = other.sum() * 0.125
    places = torch.tensor([b % t.shape[0], a % t.shape[0]])
    kinds: tuple[Callable[[], object], ...] = (
        lambda: t.add_(number),
        lambda: t.mul_(1.5),
        lambda: t.sub_(torch.arange(t.shape[-1])),
        lambda: t.fill_(0.5),
        lambda: t.zero_(),
        lambda: t.copy_(number),
        lambda: t.clamp_(min=-0.5),
        lambda: t.masked_fill_(t > 0.25, 2.0),
        lambda: t.index_put_((places,), number, accumulate=True),
        lambda: t.index_add_(0, places[:1], t[:1].clone()),
        lambda: t.index_fill_(0, places, 0.75),
        lambda: t.gt_(0),
        lambda: torch.mul(t.clone(), 0.5, out=t),
    )
    kinds[a % len(kinds)]()


class Writes(nn.Module):
    """Takes views of what it computes and writes into them, in the order of the steps."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        alive = [x * 1.0]
        for which, operation, a, b in self.steps:
            tensor = alive[which % len(alive)]
            if tensor.dim() and operation < len(VIEWS):
                alive.append(VIEWS[operation](tensor, a, b))
            elif tensor.dim():
                write(tensor, alive[b % len(alive)], a, b)
        return tuple(tensor * 2 for tensor in alive)
