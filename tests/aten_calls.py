"""Calls of ATen, drawn at random: for each of its names that the vocabulary spells, every argument
by the name that its schema has for it. An argument that is left out has its default."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from one_call import Transposed, tensor

Named = dict[str, Any]


class Drawn(NamedTuple):
    """A call; results: how many of its values are read, all where it is None."""

    named: Named
    results: int | None = None


# ---------------------------------------------------------------- what calls are made of


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
some = st.booleans()
numbers = st.sampled_from([0.5, 2, -1.25, 3])


@st.composite
def image(draw: st.DrawFn, low: int = 5, channels: int = 4) -> Tensor:
    size = (draw(st.integers(low, low + 3)), draw(st.integers(low, low + 3)))
    return tensor(draw(st.integers(1, 2)), channels, *size)


def pair(low: int, high: int) -> st.SearchStrategy[list[int]]:
    """A size for both axes, or one for each."""
    one = st.integers(low, high)
    return st.one_of(one.map(lambda n: [n]), st.tuples(one, one).map(list))


@st.composite
def elements(draw: st.DrawFn) -> Tensor:
    return tensor(*draw(shapes), seed=draw(st.integers(0, 9))) * 3


def axis_of(draw: st.DrawFn, x: Tensor) -> int:
    return draw(st.integers(-x.dim(), x.dim() - 1))


# ---------------------------------------------------------------- layers


@st.composite
def convolution(draw: st.DrawFn, whole: bool = False) -> Drawn:
    groups = draw(st.sampled_from([1, 2, 4]))
    x, kernel = draw(image()), (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    sizes = partial(st.tuples, *[st.integers(1, 2)] * 2)
    named = {
        "input": x,
        "weight": tensor(8, 4 // groups, *kernel),
        "bias": tensor(8) if draw(some) else None,
        "stride": draw(pair(1, 2) if not whole else sizes().map(list)),
        "padding": draw(pair(0, 2) if not whole else sizes().map(list)),
        "dilation": draw(pair(1, 2) if not whole else sizes().map(list)),
        "groups": groups,
    }
    further = {"transposed": False, "output_padding": [0, 0]} if whole else {}
    return Drawn(named | further)


@st.composite
def convolution_by_name(draw: st.DrawFn) -> Drawn:
    named = draw(convolution()).named
    named["padding"] = draw(st.sampled_from(["valid", "same"]))
    if named["padding"] == "same":
        named["stride"] = [1, 1]
    return Drawn(named)


@st.composite
def convolution_backward(draw: st.DrawFn) -> Drawn:
    named = draw(convolution(whole=True)).named
    named.pop("bias")
    given = {name: named[name] for name in ("stride", "padding", "dilation", "groups")}
    result = functional.conv2d(named["input"], named["weight"], **given)
    wanted = draw(st.tuples(some, some, some).filter(any))
    more = {"grad_output": tensor(*result.shape, seed=1), "bias_sizes": [8]}
    return Drawn(named | more | {"output_mask": list(wanted)})


@st.composite
def linear(draw: st.DrawFn) -> Drawn:
    before = draw(st.lists(st.integers(1, 3), max_size=2))
    bias = tensor(5) if draw(some) else None
    return Drawn({"input": tensor(*before, 6), "weight": tensor(5, 6), "bias": bias})


def addmm() -> st.SearchStrategy[Drawn]:
    x = tensor(3, 6)
    return st.just(Drawn({"self": tensor(5), "mat1": x, "mat2": Transposed(tensor(5, 6))}))


@st.composite
def product(draw: st.DrawFn, batch: tuple[int, ...]) -> Drawn:
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    return Drawn({"self": tensor(*batch, m, k), "mat2": tensor(*batch, k, n, seed=1)})


# ---------------------------------------------------------------- pooling


@st.composite
def pool(draw: st.DrawFn, maximum: bool, whole: bool = False) -> Drawn:
    kernel = draw(pair(2, 3))
    named: Named = {
        "self": draw(image()),
        "kernel_size": kernel,
        "stride": draw(st.one_of(st.just([]), pair(1, 3))),
        "padding": draw(pair(0, 1)),
        "ceil_mode": draw(some),
    }
    if maximum:
        return Drawn(named | {"dilation": draw(pair(1, 2))})
    divisor = draw(st.sampled_from([None, 1, 3]))
    return Drawn(named | {"count_include_pad": draw(some), "divisor_override": divisor})


@st.composite
def max_pool_backward(draw: st.DrawFn) -> Drawn:
    named = draw(pool(maximum=True)).named
    largest, places = torch.ops.aten.max_pool2d_with_indices.default(**named)
    return Drawn(named | {"grad_output": tensor(*largest.shape, seed=1), "indices": places})


@st.composite
def average_pool_backward(draw: st.DrawFn) -> Drawn:
    named = draw(pool(maximum=False)).named
    result = torch.ops.aten.avg_pool2d.default(**named)
    return Drawn(named | {"grad_output": tensor(*result.shape, seed=1)})


@st.composite
def adaptive_pool(draw: st.DrawFn) -> Drawn:
    size = [draw(st.integers(1, 9)), draw(st.integers(1, 9))]
    return Drawn({"self": draw(image()), "output_size": size})


@st.composite
def adaptive_pool_backward(draw: st.DrawFn) -> Drawn:
    x, size = draw(adaptive_pool()).named.values()
    return Drawn({"self": x, "grad_output": tensor(*x.shape[:2], *size, seed=1)})


# ---------------------------------------------------------------- norms


@st.composite
def norm(draw: st.DrawFn, **further: Any) -> Drawn:
    """Of [N, C], [N, C, L] or [N, C, H, W]."""
    results = further.pop("results", None)
    x = tensor(3, 4, *draw(st.sampled_from([(), (5,), (2, 3)])))
    named = {
        "input": x,
        "weight": tensor(4) if draw(some) else None,
        "bias": tensor(4, seed=1) if draw(some) else None,
        "running_mean": tensor(4, seed=2),
        "running_var": tensor(4, seed=3).abs() + 0.5,
        "momentum": 0.25,
        "eps": draw(st.sampled_from([1e-5, 1e-2])),
    }
    return Drawn(named | further, results)


@st.composite
def norm_backward(draw: st.DrawFn) -> Drawn:
    given = draw(norm()).named
    x, axes = given["input"], [0, *range(2, given["input"].dim())]
    variance = x.var(axes, correction=0)
    kept = {name: given[name] for name in ("input", "weight", "running_mean", "running_var", "eps")}
    more = {
        "grad_out": tensor(*x.shape, seed=1),
        "save_mean": x.mean(axes),
        "save_invstd": (variance + given["eps"]).rsqrt(),
        "train": True,
        "output_mask": list(draw(st.tuples(some, some, some).filter(any))),
    }
    return Drawn(kept | more)


# ---------------------------------------------------------------- elements


@st.composite
def arithmetic(draw: st.DrawFn, alpha: bool, scalar: bool, integers: bool = True) -> Drawn:
    x = draw(elements())
    spread = [draw(st.sampled_from([1, n])) for n in x.shape][draw(st.integers(0, x.dim())) :]
    other = draw(numbers) if scalar or draw(some) else tensor(*spread, seed=5)
    if integers and draw(some):
        x = x.long()
        other = other.long() if isinstance(other, Tensor) else int(other)
    return Drawn({"self": x, "other": other} | ({"alpha": 1} if alpha else {}))


def of_one(name: str = "self", **further: st.SearchStrategy[Any]) -> st.SearchStrategy[Drawn]:
    """A call with one tensor of any shape."""
    fixed = st.fixed_dictionaries({name: elements(), **further})
    return fixed.map(Drawn)


@st.composite
def gradient(draw: st.DrawFn, value: str, **further: Any) -> Drawn:
    x = draw(elements())
    given = {name: draw(item) for name, item in further.items()}
    return Drawn({"grad_output": tensor(*x.shape, seed=1), value: x} | given)


@st.composite
def bounds(draw: st.DrawFn, call: st.SearchStrategy[Drawn], defaults: bool) -> Drawn:
    low, high = (-1, 1) if defaults and draw(some) else (draw(numbers) - 4, draw(numbers) + 2)
    return Drawn(draw(call).named | {"min_val": low, "max_val": high})


@st.composite
def softmax(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "dim": axis_of(draw, x)} | further)


@st.composite
def softmax_backward(draw: st.DrawFn, log: bool) -> Drawn:
    x = draw(elements())
    axis = axis_of(draw, x)
    result = x.log_softmax(axis) if log else x.softmax(axis)
    given = {"grad_output": tensor(*x.shape, seed=1), "output": result, "dim": axis}
    return Drawn(given | {"input_dtype": torch.float64})


@st.composite
def dropout_backward(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"grad_output": x, "mask": x > 0, "scale": draw(st.sampled_from([1.0, 2.0]))})


# ---------------------------------------------------------------- shapes


@st.composite
def reduction(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True))
    axes = [axis - x.dim() if draw(some) else axis for axis in axes]
    return Drawn({"self": x, "dim": draw(st.sampled_from([axes, None])), "keepdim": draw(some)})


@st.composite
def shaped(draw: st.DrawFn, name: str) -> Drawn:
    """The same elements by another shape, one size of which may be left to find."""
    x = draw(elements())
    shape = draw(st.permutations(x.shape))
    if draw(some):
        shape = [*shape[:1], -1] if len(shape) > 1 else [-1, 1]
    return Drawn({"self": x, name: list(shape)})


@st.composite
def flatten(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    ends = sorted(draw(st.lists(st.integers(0, x.dim() - 1), min_size=2, max_size=2)))
    start, end = (axis - x.dim() if draw(some) else axis for axis in ends)
    return Drawn({"self": x, "start_dim": start, "end_dim": end})


@st.composite
def squeeze(draw: st.DrawFn, several: bool) -> Drawn:
    x = tensor(*draw(st.lists(st.sampled_from([1, 1, 3]), min_size=1, max_size=4)))
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True, min_size=1))
    axes = [axis - x.dim() if draw(some) else axis for axis in axes]
    return Drawn({"self": x, "dim": axes if several else axes[0]})


@st.composite
def unsqueeze(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "dim": draw(st.integers(-x.dim() - 1, x.dim()))})


@st.composite
def view_as(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "other": tensor(*draw(st.permutations(x.shape)))})


@st.composite
def permute(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    order = draw(st.permutations(range(x.dim())))
    return Drawn({"self": x, "dims": [a - x.dim() if draw(some) else a for a in order]})


@st.composite
def transpose(draw: st.DrawFn) -> Drawn:
    x = draw(st.one_of(elements(), st.just(torch.tensor(2.5))))
    ends = st.integers(-max(x.dim(), 1), max(x.dim(), 1) - 1)
    return Drawn({"self": x, "dim0": draw(ends), "dim1": draw(ends)})


def matrix_transpose() -> st.SearchStrategy[Drawn]:
    return st.sampled_from([(), (3,), (3, 4)]).map(lambda shape: Drawn({"self": tensor(*shape)}))


@st.composite
def expand(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    kept = [draw(st.sampled_from([1, n])) for n in shape][draw(st.integers(0, len(shape))) :]
    first = len(shape) - len(kept)
    size = [
        -1 if i >= first and kept[i - first] == n and draw(some) else n for i, n in enumerate(shape)
    ]
    return Drawn({"self": tensor(*kept), "size": size})


@st.composite
def concatenation(draw: st.DrawFn) -> Drawn:
    shape = list(draw(shapes))
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    parts = [tensor(*shape[:axis], n, *shape[axis + 1 :], seed=n) for n in sizes]
    return Drawn({"tensors": parts, "dim": axis - len(shape) if draw(some) else axis})


@st.composite
def range_of(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    ends = st.one_of(st.none(), st.integers(-6, 6), st.just(2**63 - 1))
    given = {"start": draw(ends), "end": draw(ends), "step": draw(st.integers(1, 3))}
    return Drawn({"self": x, "dim": axis_of(draw, x)} | given)


@st.composite
def padded(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(image())
    sides = draw(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2)), max_size=2))
    value = draw(st.sampled_from([0, 0.5, float("-inf")]))
    return Drawn({"self": x, "pad": [n for both in sides for n in both], "value": value} | further)


@st.composite
def filled(draw: st.DrawFn, **further: st.SearchStrategy[Any]) -> Drawn:
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.int64, None]))
    size = draw(st.one_of(st.just(()), shapes))
    given = {name: draw(item) for name, item in further.items()}
    return Drawn({"size": list(size), "dtype": dtype} | given)


# ---------------------------------------------------------------- the loss


@st.composite
def loss(draw: st.DrawFn) -> Drawn:
    ignored = draw(st.sampled_from([-100, 2]))
    target = torch.tensor([draw(st.sampled_from([0, 1, 3, ignored])) for _ in range(5)])
    return Drawn(
        {
            "self": tensor(5, 4).log_softmax(1),
            "target": target,
            "weight": tensor(4).abs() if draw(some) else None,
            "reduction": draw(st.integers(0, 2)),
            "ignore_index": ignored,
        }
    )


@st.composite
def loss_backward(draw: st.DrawFn) -> Drawn:
    named = draw(loss()).named
    value, total = torch.ops.aten.nll_loss_forward.default(**named)
    more = {"grad_output": tensor(*value.shape, seed=1), "total_weight": total}
    return Drawn(named | more)


# ---------------------------------------------------------------- functions of elements


@st.composite
def of_numbers(draw: st.DrawFn) -> Tensor:
    """Numbers, whole numbers or truths."""
    x = draw(elements())
    kind = draw(st.sampled_from(["float", "int", "bool"]))
    return x if kind == "float" else x.long() if kind == "int" else x > 0


def whole(x: Tensor) -> Tensor:
    """Whole numbers by which one can divide."""
    return torch.where(x.long() == 0, 1, x.long())


@st.composite
def of_two(draw: st.DrawFn, scalar: bool, kinds: str = "float int", other: str = "other") -> Drawn:
    x = draw(elements())
    spread = [draw(st.sampled_from([1, n])) for n in x.shape][draw(st.integers(0, x.dim())) :]
    kind = draw(st.sampled_from(kinds.split()))
    y: Tensor | float = draw(numbers) if scalar else tensor(*spread, seed=5) * 2
    if kind != "float":
        x = whole(x) if kind == "int" else x > 0
        if isinstance(y, Tensor):
            y = whole(y) if kind == "int" else y > 0
        else:
            y = int(y) or 1 if kind == "int" else y > 0
    if not scalar and draw(some):
        x, y = y, x  # the first is repeated
    return Drawn({"self": x, other: y})


@st.composite
def power(draw: st.DrawFn, first: bool, second: bool) -> Drawn:
    x = draw(elements()).abs() + 0.1
    y: Any = tensor(*x.shape, seed=1) if second else draw(st.sampled_from([2, 0.5, -1, 3]))
    return Drawn({"self": x if first else 1.5, "exponent": y})


@st.composite
def choice(draw: st.DrawFn, first: bool, second: bool) -> Drawn:
    x = draw(elements())
    other = tensor(*x.shape[draw(st.integers(0, x.dim())) :], seed=1)
    return Drawn({
        "condition": x > 0, "self": other if first else 1.5, "other": x if second else -2.0
    })  # fmt: skip


@st.composite
def masked(draw: st.DrawFn, scalar: bool) -> Drawn:
    x = draw(elements())
    value = float("-inf") if scalar else torch.tensor(2.5, dtype=x.dtype)
    return Drawn({"self": x, "mask": tensor(*x.shape[1:], seed=1) > 0, "value": value})


def of_some(name: str = "self", positive: bool = False) -> st.SearchStrategy[Drawn]:
    shift = 20 if positive else 0
    return elements().map(lambda x: Drawn({name: x + shift}))


def converted(name: str, **further: Any) -> st.SearchStrategy[Drawn]:
    kinds = st.sampled_from([torch.float32, torch.int64, torch.int32, torch.bool])
    return st.tuples(of_numbers(), kinds).map(
        lambda pair: Drawn({name: pair[0], "dtype": pair[1], **further})
    )


# ---------------------------------------------------------------- indices


@st.composite
def taken(draw: st.DrawFn, name: str, axis: bool) -> Drawn:
    x = draw(elements()) if axis else tensor(5, 3)
    dim = axis_of(draw, x) if axis else 0
    rank = 1 if axis else draw(st.integers(0, 3))
    places = draw(index_below(x.shape[dim], (2,) * rank))
    if axis:
        return Drawn({"self": x, "dim": dim, "index": places})
    return Drawn({"weight": x, "indices": places, "padding_idx": draw(st.sampled_from([-1, 1]))})


@st.composite
def index_below(draw: st.DrawFn, size: int, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    return torch.randint(0, size, shape, generator=generator)


@st.composite
def embedding_backward(draw: st.DrawFn) -> Drawn:
    places = draw(index_below(5, (2, 3)))
    return Drawn({
        "grad_output": tensor(2, 3, 4), "indices": places, "num_weights": 5,
        "padding_idx": draw(st.sampled_from([-1, 2])), "scale_grad_by_freq": False,
    })  # fmt: skip


@st.composite
def gathered(draw: st.DrawFn, source: str = "", add: bool = False) -> Drawn:
    x = draw(elements())
    axis = axis_of(draw, x)
    shape = list(x.shape)
    places = torch.argsort(tensor(*shape, seed=3), axis)  # each place once
    if add:
        places = draw(index_below(shape[axis], tuple(shape)))
    named: Named = {"self": x, "dim": axis, "index": places}
    if source:
        named[source] = 1.5 if source == "value" else tensor(*shape, seed=4)
    return Drawn(named)


@st.composite
def indexed(draw: st.DrawFn, put: bool = False) -> Drawn:
    x = tensor(3, 4, 5)
    pattern = draw(st.sampled_from([(1,), (0, 1), (1, 2), (0, 2), (2,)]))
    whole = (2, 3)
    indices: list[Any] = [None] * 3
    for axis in pattern:
        shape = whole if draw(some) else whole[1:]
        indices[axis] = draw(index_below(x.shape[axis], shape)) - (3 if axis == 1 else 0)
    indices = indices[: pattern[-1] + 1]
    if not put:
        return Drawn({"self": x, "indices": indices})
    complete = tuple(slice(None) if item is None else item for item in indices)
    values = tensor(*x[complete].shape, seed=1)
    # Where two indices name one place, only a sum has a defined result.
    return Drawn({"self": x, "indices": indices, "values": values, "accumulate": True})


@st.composite
def extreme(draw: st.DrawFn, keep: bool = True) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "dim": axis_of(draw, x), "keepdim": draw(some)})


@st.composite
def sorted_elements(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(elements()).round()  # some are equal
    named = {"self": x, "dim": axis_of(draw, x), "descending": draw(some)}
    return Drawn(named | further, None if further else 1)


@st.composite
def flipped(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True))
    return Drawn({"self": x, "dims": [a - x.dim() if draw(some) else a for a in axes]})


@st.composite
def steps(draw: st.DrawFn, *names: str) -> Drawn:
    whole = draw(some)
    given = {"start": 1 if whole else 0.5, "end": 7 if whole else 6.25, "step": draw(
        st.sampled_from([1, 2]) if whole else st.sampled_from([0.5, 1.25])
    )}  # fmt: skip
    named = {name: given[name] for name in names}
    return Drawn(named | {"dtype": torch.int64 if whole else torch.float64})


# ---------------------------------------------------------------- layer norm


@st.composite
def layer_norm(draw: st.DrawFn) -> Drawn:
    x, axes = tensor(2, 3, 4), draw(st.integers(1, 2))
    shape = list(x.shape[3 - axes :])
    return Drawn({
        "input": x, "normalized_shape": shape,
        "weight": tensor(*shape) if draw(some) else None,
        "bias": tensor(*shape, seed=1) if draw(some) else None,
        "eps": draw(st.sampled_from([1e-5, 1e-2])),
    })  # fmt: skip


@st.composite
def layer_norm_backward(draw: st.DrawFn) -> Drawn:
    named = draw(layer_norm()).named
    _, mean, deviation = torch.ops.aten.native_layer_norm.default(**named)
    named.pop("eps")
    mask = [True, named["weight"] is not None, named["bias"] is not None]
    further = {"grad_out": tensor(2, 3, 4, seed=1), "mean": mean, "rstd": deviation}
    return Drawn(named | further | {"output_mask": mask})


# ---------------------------------------------------------------- all of them


NO_ZERO = "float int"
COMPARED = "float int bool"
_TWO = {
    "remainder": NO_ZERO, "fmod": NO_ZERO, "eq": COMPARED, "ne": COMPARED, "lt": NO_ZERO,
    "le": NO_ZERO, "gt": NO_ZERO, "ge": NO_ZERO, "bitwise_and": "int bool",
    "bitwise_or": "int bool", "bitwise_xor": "int bool",
}  # fmt: skip
_ONE_OVERLOAD = {
    "minimum": NO_ZERO, "maximum": NO_ZERO, "logical_and": COMPARED, "logical_or": COMPARED,
    "logical_xor": COMPARED, "atan2": "float",
}  # fmt: skip
_POSITIVE = ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal")
_ANY = (
    "abs sign floor ceil trunc exp expm1 exp2 sin cos tan atan sinh cosh erf isnan isinf "
    "logical_not round"
).split()

FUNCTIONS: dict[str, st.SearchStrategy[Drawn]] = {
    **{f"aten.{name}.Tensor": of_two(False, kinds) for name, kinds in _TWO.items()},
    **{f"aten.{name}.Scalar": of_two(True, kinds) for name, kinds in _TWO.items()},
    **{f"aten.{name}.default": of_two(False, kinds) for name, kinds in _ONE_OVERLOAD.items()},
    **{f"aten.{name}.default": of_some(positive=True) for name in _POSITIVE},
    **{f"aten.{name}.default": of_some() for name in _ANY},
    "aten.floor_divide.default": of_two(False, NO_ZERO),
    "aten.floor_divide.Scalar": of_two(True, NO_ZERO),
    "aten.bitwise_not.default": of_numbers()
    .filter(lambda x: x.dtype != torch.float64)
    .map(lambda x: Drawn({"self": x})),
    "aten.__and__.Tensor": of_two(False, "int bool"),
    "aten.__or__.Tensor": of_two(False, "int bool"),
    "aten.div.Tensor_mode": of_two(False, NO_ZERO).map(
        lambda d: Drawn(d.named | {"rounding_mode": "floor"})
    ),
    "aten.div.Scalar_mode": of_two(True, NO_ZERO).map(
        lambda d: Drawn(d.named | {"rounding_mode": "floor"})
    ),
    "aten.pow.Tensor_Tensor": power(True, True),
    "aten.pow.Tensor_Scalar": power(True, False),
    "aten.pow.Scalar": power(False, True),
    "aten.clamp_min.default": of_some().map(lambda d: Drawn(d.named | {"min": -0.5})),
    "aten.clamp_max.default": of_some().map(lambda d: Drawn(d.named | {"max": 0.5})),
    "aten.clamp_min.Tensor": of_two(False, "float", "min"),
    "aten.clamp_max.Tensor": of_two(False, "float", "max"),
    "aten.where.self": choice(True, True),
    "aten.where.ScalarSelf": choice(False, True),
    "aten.where.ScalarOther": choice(True, False),
    "aten.where.Scalar": choice(False, False),
    "aten.masked_fill.Scalar": masked(True),
    "aten.masked_fill.Tensor": masked(False),
    "aten.rsub.Scalar": of_two(True, NO_ZERO).map(lambda d: Drawn(d.named | {"alpha": 1})),
    "aten.rsub.Tensor": of_two(False, NO_ZERO).map(lambda d: Drawn(d.named | {"alpha": 1})),
    "aten.to.dtype": converted("self"),
    "aten._to_copy.default": converted("self"),
    "prims.convert_element_type.default": converted("a"),
    "aten.type_as.default": of_numbers().map(
        lambda x: Drawn({"self": x, "other": torch.ones(2, dtype=torch.int64)})
    ),
}

INDICES: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.embedding.default": taken("weight", axis=False),
    "aten.index_select.default": taken("self", axis=True),
    "aten.embedding_dense_backward.default": embedding_backward(),
    "aten.gather.default": gathered(),
    "aten.scatter.src": gathered("src"),
    "aten.scatter.value": gathered("value"),
    "aten.scatter_add.default": gathered("src", add=True),
    "aten.index.Tensor": indexed(),
    "aten._unsafe_index.Tensor": indexed(),
    "aten.index_put.default": indexed(put=True),
    "aten._unsafe_index_put.default": indexed(put=True),
    "aten.arange.default": steps("end"),
    "aten.arange.start": steps("start", "end"),
    "aten.arange.start_step": steps("start", "end", "step"),
    "prims.iota.default": st.just(Drawn({
        "length": 5, "start": 2, "step": 3, "dtype": torch.int64, "device": torch.device("cpu"),
        "requires_grad": False,
    })),
    "aten.flip.default": flipped(),
    "aten.cumsum.default": elements().map(lambda x: Drawn({"self": x, "dim": -1})),
    "aten.sort.default": sorted_elements().map(lambda d: Drawn(d.named)),
    "aten.sort.stable": sorted_elements(stable=True),
    "aten.argmax.default": extreme(),
    "aten.argmin.default": extreme(),
}  # fmt: skip


def _binary(name: str, alpha: bool) -> dict[str, st.SearchStrategy[Drawn]]:
    whole = name != "div"  # whole numbers divide to fractions
    return {
        f"aten.{name}.Tensor": arithmetic(alpha, scalar=False, integers=whole),
        f"aten.{name}.Scalar": arithmetic(alpha, scalar=True, integers=whole),
    }


argument = partial(gradient, "self")
result = partial(gradient, "output")
elu_numbers = {"alpha": numbers, "scale": st.just(1), "input_scale": st.just(1)}
slopes = st.sampled_from([0.01, 0.3, 0, 1.5])
approximation = st.sampled_from(["none", "tanh"])

CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    **FUNCTIONS,
    **INDICES,
    "aten.native_layer_norm.default": layer_norm(),
    "aten.native_layer_norm_backward.default": layer_norm_backward(),
    # layers
    "aten.conv2d.default": convolution(),
    "aten.convolution.default": convolution(whole=True),
    "aten.conv2d.padding": convolution_by_name(),
    "aten.convolution_backward.default": convolution_backward(),
    "aten.linear.default": linear(),
    "aten.addmm.default": addmm(),
    "aten.mm.default": product(()),
    "aten.bmm.default": product((2,)),
    # pooling
    "aten.max_pool2d.default": pool(maximum=True),
    "aten.max_pool2d_with_indices.default": pool(maximum=True),
    "aten.max_pool2d_with_indices_backward.default": max_pool_backward(),
    "aten.avg_pool2d.default": pool(maximum=False),
    "aten.avg_pool2d_backward.default": average_pool_backward(),
    "aten.adaptive_avg_pool2d.default": adaptive_pool(),
    "aten._adaptive_avg_pool2d.default": adaptive_pool(),
    "aten._adaptive_avg_pool2d_backward.default": adaptive_pool_backward(),
    # norms
    "aten.batch_norm.default": norm(training=False, cudnn_enabled=True),
    "aten._native_batch_norm_legit_no_training.default": norm(results=1),
    "aten._native_batch_norm_legit_functional.default": norm(training=True),
    "aten.native_batch_norm_backward.default": norm_backward(),
    # elements
    **_binary("add", alpha=True),
    **_binary("sub", alpha=True),
    **_binary("mul", alpha=False),
    **_binary("div", alpha=False),
    "aten.neg.default": st.one_of(of_one(), of_one().map(
        lambda drawn: Drawn({"self": drawn.named["self"].long()})
    )),
    "aten.relu.default": of_one(),
    "aten.relu6.default": of_one(),
    "aten.hardtanh.default": bounds(of_one(), defaults=True),
    "aten.tanh.default": of_one(),
    "aten.sigmoid.default": of_one(),
    "aten.silu.default": of_one(),
    "aten.gelu.default": of_one(approximate=approximation),
    "aten.elu.default": of_one(**elu_numbers),
    "aten.leaky_relu.default": of_one(negative_slope=slopes),
    "aten.hardswish.default": of_one(),
    "aten.hardsigmoid.default": of_one(),
    "aten.threshold_backward.default": argument(threshold=st.sampled_from([0, 0.0])),
    "aten.hardtanh_backward.default": bounds(argument(), defaults=False),
    "aten.tanh_backward.default": result(),
    "aten.sigmoid_backward.default": result(),
    "aten.silu_backward.default": argument(),
    "aten.gelu_backward.default": argument(approximate=approximation),
    "aten.elu_backward.default": gradient(
        "self_or_result", is_result=st.just(False), **elu_numbers
    ),
    "aten.leaky_relu_backward.default": argument(
        negative_slope=slopes, self_is_result=st.just(False)
    ),
    "aten.hardswish_backward.default": argument(),
    "aten.hardsigmoid_backward.default": argument(),
    "aten.softmax.int": softmax(dtype=None),
    "aten.log_softmax.int": softmax(dtype=None),
    "aten._softmax.default": softmax(half_to_float=False),
    "aten._log_softmax.default": softmax(half_to_float=False),
    "aten._softmax_backward_data.default": softmax_backward(log=False),
    "aten._log_softmax_backward_data.default": softmax_backward(log=True),
    "aten.native_dropout.default": of_one(
        "input", p=st.sampled_from([0.0, 0.3, 1.0]), train=st.sampled_from([True, None])
    ),
    "aten.native_dropout_backward.default": dropout_backward(),
    "aten.dropout.default": of_one("input", p=st.just(0.3), train=st.just(False)),
    # copies
    "aten.clone.default": of_one(
        memory_format=st.sampled_from([None, torch.contiguous_format])
    ),
    "aten.contiguous.default": of_one(),
    "aten.detach.default": of_one(),
    "aten.alias.default": of_one(),
    "aten.lift_fresh_copy.default": of_one(),
    # shapes
    "aten.view.default": shaped("size"),
    "aten._unsafe_view.default": shaped("size"),
    "aten.reshape.default": shaped("shape"),
    "aten.view_as.default": view_as(),
    "aten.flatten.using_ints": flatten(),
    "aten.unflatten.int": st.sampled_from([[2, 3], [-1, 2], [6, 1]]).map(
        lambda sizes: Drawn({"self": tensor(4, 6, 2), "dim": -2, "sizes": sizes})
    ),
    "aten.squeeze.default": st.sampled_from([(1, 3, 1), (1, 1), (2, 3)]).map(
        lambda shape: Drawn({"self": tensor(*shape)})
    ),
    "aten.squeeze.dim": squeeze(several=False),
    "aten.squeeze.dims": squeeze(several=True),
    "aten.unsqueeze.default": unsqueeze(),
    "aten.permute.default": permute(),
    "aten.transpose.int": transpose(),
    "aten.t.default": matrix_transpose(),
    "aten.expand.default": expand(),
    "aten.expand_as.default": st.just(Drawn({"self": tensor(3, 1), "other": tensor(2, 3, 4)})),
    "aten.cat.default": concatenation(),
    "aten.slice.Tensor": range_of(),
    "aten.constant_pad_nd.default": padded(),
    "aten.pad.default": padded(mode="constant"),
    "aten.pixel_unshuffle.default": st.sampled_from([1, 2, 3]).map(
        lambda factor: Drawn({"self": tensor(2, 3, 6, 12), "downscale_factor": factor})
    ),
    "aten.full.default": filled(fill_value=st.sampled_from([2, 0.5, float("-inf")])).filter(
        lambda drawn: drawn.named["dtype"] != torch.int64 or drawn.named["fill_value"] == 2
    ),
    "aten.ones.default": filled(),
    "aten.zeros.default": filled(),
    "aten.empty.memory_format": st.just(Drawn({"size": [0, 3], "dtype": torch.float64})),
    "aten.empty_like.default": st.just(Drawn({"self": torch.zeros(0, 3, dtype=torch.float64)})),
    "aten.new_empty.default": st.just(Drawn({"self": tensor(2), "size": [0]})),
    "aten.zeros_like.default": st.just(Drawn({"self": tensor(2, 3)})),
    "aten.new_zeros.default": st.just(Drawn({"self": tensor(2), "size": [3, 4]})),
    "aten.full_like.default": st.just(Drawn({"self": tensor(2, 3), "fill_value": 2.5})),
    "aten.new_full.default": st.just(Drawn({"self": tensor(2), "size": [3], "fill_value": 2})),
    "aten.scalar_tensor.default": st.sampled_from([2.5, -1]).map(
        lambda number: Drawn({"s": number, "dtype": torch.float64})
    ),
    "aten.new_ones.default": st.sampled_from([torch.float64, None]).map(
        lambda dtype: Drawn({"self": tensor(2), "size": [3, 4], "dtype": dtype})
    ),
    "aten.ones_like.default": st.just(Drawn({"self": tensor(2, 3)})),
    # sums
    "aten.sum.dim_IntList": reduction(),
    "aten.mean.dim": reduction(),
    "aten.amax.default": reduction().filter(lambda d: d.named["dim"] is not None),
    "aten.amin.default": reduction().filter(lambda d: d.named["dim"] is not None),
    "aten.max.default": of_one(),
    "aten.min.default": of_one(),
    "aten.prod.default": of_one(),
    "aten.prod.dim_int": extreme(),
    "aten.sum.default": of_one(),
    "aten.mean.default": of_one(),
    # the loss
    "aten.nll_loss_forward.default": loss(),
    "aten.nll_loss_backward.default": loss_backward(),
}  # fmt: skip
