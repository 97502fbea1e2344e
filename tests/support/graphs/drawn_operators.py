"""Operators with their arguments drawn from all that is legal, each alone in a network.

What is computed is a function of x times a parameter of its shape, so that the parameter's gradient
shows the operator's own. Shapes and numbers shrink.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional


class Alone(NamedTuple):
    """A function of a tensor of this shape, and what it is, for a report. shape: with samples as
    its first axis. layer: what has parameters of its own."""

    text: str
    shape: tuple[int, ...]
    run: Callable[..., Tensor]
    layer: nn.Module | None = None

    def __repr__(self) -> str:
        return f"{self.text} of {list(self.shape)}"

    def module(self) -> nn.Module:
        """The network."""
        return _Scaled(self)


class _Scaled(nn.Module):
    def __init__(self, alone: Alone) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.rand(alone.shape, generator=generator) + 0.5)
        self.run, self.layer = alone.run, alone.layer

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.weight
        result = self.run(x) if self.layer is None else self.run(x, self.layer)
        # A loss wants a row for each sample.
        return (
            result.reshape(x.shape[0], -1)
            if result.numel() % x.shape[0] == 0
            else (result.reshape(1, -1).expand(x.shape[0], -1))
        )


some = st.booleans()


@st.composite
def shapes(draw: st.DrawFn, low: int = 1, high: int = 5) -> tuple[int, ...]:
    """Samples, then axes of a few elements."""
    return (draw(st.integers(2, 3)), *draw(
        st.lists(st.integers(1, 4), min_size=low - 1, max_size=high - 1)
    ))  # fmt: skip


def axis(draw: st.DrawFn, shape: tuple[int, ...]) -> int:
    return draw(st.integers(-len(shape), len(shape) - 1))


# ---------------------------------------------------------------- functions of elements

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "sine": torch.sin, "exponential": torch.exp, "error function": torch.erf,
    "arc tangent": torch.atan, "absolute": torch.abs, "square": torch.square,
    "logarithm": lambda x: torch.log(x.abs() + 0.5), "root": lambda x: torch.sqrt(x.abs() + 0.5),
    "reciprocal root": lambda x: torch.rsqrt(x.abs() + 0.5), "expm1": torch.expm1,
    "log1p": lambda x: torch.log1p(x.abs()), "softplus": functional.softplus,
    "mish": functional.mish, "hyperbolic": lambda x: torch.sinh(x) - torch.cosh(x),
    "erfinv": lambda x: torch.erfinv(0.9 * torch.tanh(x)), "erfc": torch.erfc,
    "asinh": torch.asinh, "atanh": lambda x: torch.atanh(0.9 * torch.tanh(x)),
    "clamped": lambda x: x.clamp(-0.4, 0.9), "cube": lambda x: x**3,
}  # fmt: skip
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add, "difference": torch.sub, "product": torch.mul,
    "quotient": lambda a, b: a / (b.abs() + 0.5), "maximum": torch.maximum,
    "minimum": torch.minimum, "power": lambda a, b: (a.abs() + 0.5) ** b,
    "choice": lambda a, b: torch.where(a > b, a, b * b), "angle": torch.atan2,
    "hypotenuse": torch.hypot,
}  # fmt: skip


@st.composite
def elements(draw: st.DrawFn) -> Alone:
    name = draw(st.sampled_from(sorted(UNARY)))
    return Alone(name, draw(shapes()), UNARY[name])


@st.composite
def broadcast(draw: st.DrawFn) -> Alone:
    """Of x, in an order and with gaps, and of a part of it that is repeated."""
    shape = draw(shapes(2))
    name = draw(st.sampled_from(sorted(BINARY)))
    order = draw(st.permutations(range(len(shape))))
    step = draw(st.integers(1, 2))
    kept = [draw(some) for _ in shape]
    dropped = draw(st.integers(0, len(shape) - 1))
    swapped = draw(some)

    def run(x: Tensor) -> Tensor:
        wide = x.permute(order)[..., ::step]
        narrow = wide
        for place, whole in enumerate(kept):
            narrow = narrow if whole else narrow.narrow(place, 0, 1)
        narrow = narrow.reshape(narrow.shape[dropped:]) if all(
            size == 1 for size in narrow.shape[:dropped]
        ) else narrow  # fmt: skip
        given = (narrow, wide) if swapped else (wide, narrow)
        return BINARY[name](*given)

    return Alone(f"{name} in the order {order}, step {step}, kept {kept}", shape, run)


# ---------------------------------------------------------------- along axes

REDUCED: dict[str, Callable[..., Tensor]] = {
    "sum": torch.sum, "mean": torch.mean, "largest": torch.amax, "smallest": torch.amin,
    "variance": torch.var, "log of sum": torch.logsumexp,
}  # fmt: skip
ALONG: dict[str, Callable[[Tensor, int], Tensor]] = {
    "softmax": torch.softmax, "log softmax": torch.log_softmax, "running sum": torch.cumsum,
    "running product": torch.cumprod, "running maximum": lambda x, dim: torch.cummax(x, dim)[0],
    "running log of sum": torch.logcumsumexp, "product": torch.prod,
    "sorted": lambda x, dim: torch.sort(x, dim)[0],
    "sorted downwards": lambda x, dim: torch.sort(x, dim, descending=True)[0],
    "places in order": lambda x, dim: x.gather(dim, torch.argsort(x, dim).flip(dim)),
    "place of the largest": lambda x, dim: x * x.argmax(dim, keepdim=True),
    "the first two": lambda x, dim: torch.topk(x, min(2, x.shape[dim]), dim)[0],
    "middle": lambda x, dim: torch.median(x, dim)[0], "reversed": torch.flip,
    "norm of one": lambda x, dim: functional.normalize(x + 2, dim=dim),
}  # fmt: skip


@st.composite
def reduced(draw: st.DrawFn) -> Alone:
    name, shape = draw(st.sampled_from(sorted(REDUCED))), draw(shapes())
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    if name == "variance":
        axes = [*{0, *axes}]  # of one element it is no number
    keep = draw(some)
    return Alone(f"{name} over {axes}", shape, lambda x: REDUCED[name](x, dim=axes, keepdim=keep))


@st.composite
def along(draw: st.DrawFn) -> Alone:
    name, shape = draw(st.sampled_from(sorted(ALONG))), draw(shapes())
    place = axis(draw, shape)
    given: Any = [place] if name == "reversed" else place
    return Alone(f"{name} along {place}", shape, lambda x: ALONG[name](x, given))


@st.composite
def layer_norm(draw: st.DrawFn) -> Alone:
    shape = draw(shapes(2, 4))
    rows = shape[draw(st.integers(1, len(shape) - 1)) :]
    # The gradient of a row of two or three cancels, so that only roundings are left of it.
    assume(math.prod(rows) >= 4)
    epsilon, affine = draw(st.sampled_from([1e-5, 1e-2])), draw(some)
    layer = nn.LayerNorm(rows, eps=epsilon, elementwise_affine=affine)
    return Alone(f"layer norm of {rows}", shape, lambda x, norm: norm(x), layer)


# ---------------------------------------------------------------- indices


@st.composite
def indexed(draw: st.DrawFn) -> Alone:
    shape = draw(shapes(2, 4))
    place = draw(st.integers(0, len(shape) - 1))
    size = shape[place]
    count = draw(st.integers(1, 4))
    row = draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
    kind = draw(st.sampled_from(["taken", "gathered", "added", "rows added", "indexed", "put"]))

    def run(x: Tensor) -> Tensor:
        places = torch.tensor(row)
        wide = places.reshape([-1 if a == place else 1 for a in range(len(shape))]).expand(
            [count if a == place else n for a, n in enumerate(shape)]
        )
        chosen = x.index_select(place, places)
        every = [slice(None)] * place
        if kind == "taken":
            return chosen
        if kind == "gathered":
            return x.gather(place, wide)
        if kind == "added":
            return x.scatter_add(place, wide, chosen * chosen)
        if kind == "rows added":
            return x.index_add(place, places, chosen, alpha=2)
        if kind == "indexed":
            return x[(*every, places - size)]
        pair: list[Tensor | None] = [*(None for _ in every), places]
        return torch.ops.aten.index_put.default(x, pair, chosen * 0.5, True)

    return Alone(f"{kind} by {row} along {place}", shape, run)


# ---------------------------------------------------------------- copies


@st.composite
def copied(draw: st.DrawFn) -> Alone:
    shape = draw(shapes(1, 6))
    kind = draw(st.sampled_from(["permuted", "reshaped", "rolled", "repeated", "part", "joined"]))
    place = draw(st.integers(0, len(shape) - 1))
    order = draw(st.permutations(range(len(shape))))
    start, step = draw(st.integers(0, shape[place] - 1)), draw(st.integers(1, 3))
    shift = draw(st.integers(-5, 5))

    def run(x: Tensor) -> Tensor:
        if kind == "permuted":
            return x.permute(order).clone()
        if kind == "reshaped":
            return x.permute(order).reshape(-1, shape[place])
        if kind == "rolled":
            return x.roll(shift, place)
        if kind == "repeated":
            return x.repeat(*(2 if a == place else 1 for a in range(len(shape))))
        if kind == "part":
            return x[(*(slice(None) for _ in range(place)), slice(start, None, step))]
        return torch.cat([x.permute(order), x.permute(order)[..., :1]], -1)

    text = f"{kind}: order {order}, along {place} from {start} by {step}, shift {shift}"
    return Alone(text, shape, run)


@st.composite
def padded(draw: st.DrawFn) -> Alone:
    axes = draw(st.integers(1, 3))
    sizes = [draw(st.integers(3, 5)) for _ in range(axes)]
    mode = draw(st.sampled_from(["constant", "reflect", "replicate", "circular"]))
    sides = [draw(st.integers(0, 2)) for _ in range(2 * axes)]
    return Alone(
        f"padded by {sides}, {mode}", (2, 2, *sizes), lambda x: functional.pad(x, sides, mode)
    )


@st.composite
def resized(draw: st.DrawFn) -> Alone:
    axes = draw(st.integers(1, 3))
    smooth = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[axes]
    mode = draw(st.sampled_from(["nearest", "nearest-exact", "area", *smooth]))
    sizes = [draw(st.integers(2, 5)) for _ in range(axes)]
    new = [draw(st.integers(1, 8)) for _ in range(axes)]
    settings: dict[str, Any] = {"align_corners": draw(some)} if mode in smooth else {}
    if mode in ("bilinear", "bicubic"):
        settings["antialias"] = draw(some)
    return Alone(
        f"resized to {new}, {mode}, {settings}", (2, 2, *sizes),
        lambda x: functional.interpolate(x, size=new, mode=mode, **settings),
    )  # fmt: skip


# ---------------------------------------------------------------- windows


@st.composite
def convolved(draw: st.DrawFn) -> Alone:
    axes, transposed = draw(st.integers(1, 3)), draw(some)
    groups = draw(st.sampled_from([1, 2]))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    stride = each(1, 2)
    further: dict[str, Any] = {
        "stride": stride, "padding": each(0, 1), "dilation": each(1, 2), "groups": groups,
        "bias": draw(some),
    }  # fmt: skip
    if transposed:
        further["output_padding"] = tuple(draw(st.integers(0, s - 1)) for s in stride)
    names = ("ConvTranspose" if transposed else "Conv") + f"{axes}d"
    layer = getattr(nn, names)(4, 2 * groups, each(1, 3), **further)
    return Alone(str(layer), (2, 4, *(each(5, 7))), lambda x, conv: conv(x), layer)


@st.composite
def pooled(draw: st.DrawFn) -> Alone:
    axes, largest = draw(st.integers(1, 3)), draw(some)
    sizes = tuple(draw(st.integers(4, 7)) for _ in range(axes))
    if draw(some):
        new = [draw(st.integers(1, 8)) for _ in range(axes)]
        name = f"adaptive_{'max' if largest else 'avg'}_pool{axes}d"
        return Alone(
            f"{name} to {new}", (2, 2, *sizes), lambda x: getattr(functional, name)(x, new)
        )
    kernel = draw(st.integers(2, 3))
    further: dict[str, Any] = {
        "stride": draw(st.integers(1, 3)),
        "padding": draw(st.integers(0, 1)),
        "ceil_mode": draw(some),
    }
    if largest:
        further["dilation"] = draw(st.integers(1, 2)) if kernel == 2 else 1
    else:
        # What `onednn` refuses is tested where refusals are.
        counts = further["padding"] and further["ceil_mode"]
        further["count_include_pad"] = draw(some) and not counts
    name = f"{'max' if largest else 'avg'}_pool{axes}d"
    return Alone(
        f"{name} by {kernel}, {further}", (2, 2, *sizes),
        lambda x: getattr(functional, name)(x, kernel, **further),
    )  # fmt: skip


FAMILIES: dict[str, st.SearchStrategy[Alone]] = {
    "elements": elements(), "broadcast": broadcast(), "reduced": reduced(), "along": along(),
    "layer norm": layer_norm(), "indexed": indexed(), "copied": copied(), "padded": padded(),
    "resized": resized(), "convolved": convolved(), "pooled": pooled(),
}  # fmt: skip
