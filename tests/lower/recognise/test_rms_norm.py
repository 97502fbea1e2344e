"""RMS norm: where it is recognised and where not, its kernels against float64, and whole plans of
networks that have it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators import rms_norm as kernels
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.quantize import E4M3
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.rms_norm import RmsNorm, RmsNormBackward
from golow.models.llama import Llama, LlamaSizes
from golow.records.workload import Mode
from support.direct.cuda_host import run, run_sums
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_graphs import lowered
from support.direct.cudnn_plans import AskedEngines
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, torch_type
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


class Written(nn.Module):
    """As Hugging Face's transformers write it for Llama, with a residual before."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self.before, self.after = nn.Linear(size, size), nn.Linear(size, 2)

    def forward(self, x: Tensor) -> Tensor:
        total = self.before(x).tanh() + x
        hidden = total.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + 1e-6)
        return self.after(self.weight * hidden.to(x.dtype) + total)


class TwoResults(nn.Module):
    """The normalised value is read without its weight, too."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self.last = nn.Linear(size, 2)

    def forward(self, x: Tensor) -> Tensor:
        normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        return self.last(normed * self.weight + normed.tanh())


class Squares(nn.Module):
    """The mean of the squares goes elsewhere, too."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(mean + 1e-5) + mean


class EarlyRoot(nn.Module):
    """The reciprocal root is read before the norm is complete."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        normed = x * root
        doubled = root * 2
        return normed * self.weight + doubled


class Shared(nn.Module):
    """Two norms of one sum, as where attention and the layers after it read the same."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.one, self.other = nn.RMSNorm(size, eps=1e-5), nn.RMSNorm(size, eps=1e-5)
        self.before, self.last = nn.Linear(size, size), nn.Linear(size, 2)

    def forward(self, x: Tensor) -> Tensor:
        total = self.before(x).tanh() + x
        return self.last(self.one(total).sin() + self.other(total).cos() + total)


def layers(*sizes: int, affine: bool = True) -> nn.Module:
    norm = nn.RMSNorm(sizes, eps=1e-5, elementwise_affine=affine)
    return nn.Sequential(nn.Linear(sizes[-1], sizes[-1]), norm, nn.Flatten(1), nn.LazyLinear(2))


@both_modes
@pytest.mark.parametrize("name", ["module", "two axes", "without weight", "written"])
def test_it_is_one_operator(name: str, mode: Mode) -> None:
    """Every stage of the passes computes the same, as `Case` checks."""
    torch.manual_seed(0)
    module = {
        "module": lambda: layers(8),
        "two axes": lambda: layers(3, 8),
        "without weight": lambda: layers(8, affine=False),
        "written": lambda: Written(8),
    }[name]()
    x = torch.randn(4, 8) if name == "written" else torch.randn(4, 3, 8)
    module(x)
    graph = Case(module, x, mode=mode).lowered("cudnn")
    (norm,) = records(graph, RmsNorm)
    assert (norm.weight is not None) == (name != "without weight")
    assert (norm.residual is not None) == (name == "written")
    assert norm.axes == (2 if name == "two axes" else 1)
    assert count(graph, RmsNormBackward) == (mode == "train")
    assert not [item for item in records(graph, Reduce) if item.function == "mean"]
    assert not [item for item in records(graph, Pointwise) if item.function == "power"]
    for gradient in records(graph, RmsNormBackward):
        assert (gradient.added is not None) == (name == "written")
        assert (gradient.weight is not None) == (name != "without weight")


@both_modes
def test_a_normalised_value_with_other_readers_has_its_weight_apart(mode: Mode) -> None:
    torch.manual_seed(0)
    graph = Case(TwoResults(8), torch.randn(4, 8), mode=mode).lowered("cudnn")
    (norm,) = records(graph, RmsNorm)
    assert norm.weight is None


def test_a_mean_that_goes_elsewhere_stays() -> None:
    graph = Case(Squares(), torch.randn(4, 8)).lowered("cudnn")
    assert not count(graph, RmsNorm)
    assert count(graph, Reduce) == 1


def test_a_root_that_is_read_early_leaves_the_arithmetic() -> None:
    graph = Case(EarlyRoot(8), torch.randn(4, 8)).lowered("cudnn")
    assert not count(graph, RmsNorm)


@both_modes
def test_two_norms_of_one_sum(mode: Mode) -> None:
    """The first one makes the sum, which the other reads."""
    torch.manual_seed(0)
    graph = Case(Shared(8), torch.randn(4, 8), mode=mode).lowered("cudnn")
    assert [norm.residual is not None for norm in records(graph, RmsNorm)] == [True, False]
    if mode == "train":
        assert 1 <= count(graph, RmsNormBackward) <= 2


def test_onednn_keeps_the_arithmetic() -> None:
    graph = Case(layers(8).eval(), torch.randn(4, 1, 8)).lowered("onednn")
    assert not count(graph, RmsNorm)


# ---------------------------------------------------------------- kernels


def launched(kernel: Kernel, given: list[Tensor | None], *results: Tensor | None) -> None:
    """Run on this processor; the results are written in place."""
    tensors = [*given, *results]
    run(kernel, [None if t is None else t.view(torch.uint8).numpy() for t in tensors])


def close(found: Tensor, expected: Tensor) -> None:
    close_to(found.double(), expected, str(found.dtype).removeprefix("torch."))


def close_to(found: Tensor, expected: Tensor, dtype: str) -> None:
    """Two tensors of float64, of which one was computed in that type."""
    limit = 8 * ROUNDING[dtype]
    torch.testing.assert_close(found, expected, rtol=limit, atol=limit)


def empty(*shape: int, dtype: str = "float32") -> Tensor:
    return torch.full(shape, torch.nan, dtype=torch_type(dtype))


# Few lengths, since each is compiled: odd ones, a vector, several of a thread, too many to hold.
LENGTHS = st.sampled_from([1, 6, 32, 200, 2056])
TYPES_DRAWN = st.sampled_from(["float32", "bfloat16", "float16"])


@pytest.mark.slow
@examples(16)
@given(
    rows=st.integers(1, 40), columns=LENGTHS, dtype=TYPES_DRAWN, weighted=st.booleans(),
    added=st.booleans(), blocks=st.sampled_from([0, 1, 3]), seed=st.integers(0, 99),
)  # fmt: skip
def test_kernels_against_float64(
    rows: int, columns: int, dtype: str, weighted: bool, added: bool, blocks: int, seed: int
) -> None:
    """blocks: those of the backward kernel that leave sums of the weight's gradient, too."""
    assume(not blocks or columns < 2056)
    torch.manual_seed(seed)
    kind = torch_type(dtype)
    x, other, gradient = (torch.randn(rows, columns).to(kind) for _ in range(3))
    residual = other if added else None
    weight = torch.rand(columns) + 0.5 if weighted else None
    y, total = empty(rows, columns, dtype=dtype), empty(rows, columns, dtype=dtype)
    deviation = empty(rows)
    kernel = kernels.forward_kernel((dtype,) * 3, rows, columns, 1e-5)
    launched(kernel, [x, residual, weight, None], y, deviation, total if added else None, None)

    def exact(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.double()

    expected = RmsNorm.meaning(x.double(), exact(residual), exact(weight), 1, 1e-5)
    close(y, expected[0])
    close(deviation, expected[1].flatten())
    s = total if added else x
    if added:
        close(total, expected[2])
    of_x, parts = empty(rows, columns, dtype=dtype), empty(blocks, columns)
    backward = kernels.backward_kernel((dtype,) * 4, rows, columns, blocks)
    results = [of_x, parts] if blocks else [of_x]
    launched(backward, [gradient, s, deviation, weight, residual], *results)
    found = RmsNormBackward.meaning(
        gradient.double(), s.double(), deviation.double()[:, None], exact(weight),
        exact(residual), 1,
    )  # fmt: skip
    # Its terms are as large as this, and may cancel: all of them in a row of one element.
    scale = deviation.double()[:, None].clamp(min=1)
    close_to(of_x.double() / scale, found[0] / scale, dtype)
    if blocks:
        torch.testing.assert_close(parts.double().sum(0), found[1], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@examples(16)
@given(
    rows=st.sampled_from([1, 5, 130, 700, 1500]), columns=LENGTHS, dtype=TYPES_DRAWN,
    source=TYPES_DRAWN, seed=st.integers(0, 99),
)  # fmt: skip
def test_weight_gradients_against_float64(
    rows: int, columns: int, dtype: str, source: str, seed: int
) -> None:
    """Over rows that one block takes, and that several do."""
    torch.manual_seed(seed)
    gradient = torch.randn(rows, columns).to(torch_type(dtype))
    s = torch.randn(rows, columns).to(torch_type(source))
    deviation, found = torch.rand(rows) + 0.5, empty(columns)
    sums = kernels.weights_kernel(dtype, source, rows, columns)
    given = [t.view(torch.uint8).numpy() for t in (gradient, s, deviation)]
    run_sums(sums, given, [found.view(torch.uint8).numpy()])
    expected = (gradient.double() * s.double() * deviation.double()[:, None]).sum(0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6 * rows)


def test_kernels_compile() -> None:
    for columns in (6, 256, 4096):
        types = ("bfloat16", "float32", "bfloat16", "bfloat16")
        found = [
            kernels.forward_kernel(types[:3], 5, columns, 1e-5),
            kernels.forward_kernel(types[:3], 5, columns, 1e-5, E4M3),
            kernels.backward_kernel(types, 5, columns),
            kernels.weights_kernel("bfloat16", "bfloat16", 5000, columns).kernel,
        ]
        if columns < 4096:
            found.append(kernels.backward_kernel(types, 5000, columns, blocks=9))
        assert_compile(found)


# ---------------------------------------------------------------- plans


@pytest.mark.slow
@both_modes
@pytest.mark.parametrize("name", ["llama", "written"])
def test_every_value_is_where_its_plan_says(name: str, mode: Mode) -> None:
    torch.manual_seed(0)
    sizes = LlamaSizes(16, 8, width=16, inner=32, layers=1, heads=2, groups=1)
    module = {"llama": lambda: Llama(sizes), "written": lambda: Written(8)}[name]()
    x = torch.randint(0, 16, (2, 8)) if name == "llama" else torch.randn(4, 8)
    if name == "llama" and mode == "train":
        module = nn.Sequential(module, nn.Flatten(1))  # a class for each sample
    graph = lowered(module, mode, x)
    assert count(graph, RmsNorm) == (3 if name == "llama" else 1)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "norms"), [("infer", 13), ("train", 39)])
def test_steps_of_llama(mode: Mode, norms: int) -> None:
    """A kernel for each of 13 norms; in training one more for x and one for the weight."""
    graph = lowered("llama_tiny", mode, batch=2, sequence=64)
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 4)
    found = Counter(step.operation for step in made.plan.steps)
    assert found["rms_norm"] + found["rms_norm_backward"] == norms


@pytest.mark.slow
def test_many_rows_are_read_once() -> None:
    """The blocks that compute the gradient of x leave sums for the weight, which are added up where
    the plan says."""
    torch.manual_seed(0)
    module, x = layers(24), torch.randn(132 * 16 * 4, 1, 24)
    module(x)
    graph = lowered(module, "train", x)
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["default"], 1)
    steps = [s.implementation for s in made.plan.steps if s.operation == "rms_norm_backward"]
    assert [step.partition("<")[0] for step in steps] == ["rms_norm_backward_summed", "sum_columns"]
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)
