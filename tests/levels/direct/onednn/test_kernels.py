"""The kernels that `onednn` generates, compiled and run: functions against float64, rows, groups of
functions over all layouts, and what happens without a compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.compiler import Compiler, find_compiler
from golow.levels.direct.kernel_views import View
from golow.levels.direct.onednn.kernels import WORTH_A_THREAD, columns, rows
from golow.levels.direct.onednn.kernels.copies import parts_joined, places_taken, rows_taken
from golow.levels.direct.onednn.kernels.elements import Statement, Written, elements
from golow.levels.direct.onednn.kernels.line import line_product
from golow.levels.direct.onednn.level import probe
from golow.lower.ir.graph import Activation
from golow.records.errors import GolowError
from golow.records.workload import Mode
from support.direct.onednn_kernels import run
from support.examples import examples
from support.models.drawn_functions import Drawn, Step, steps_drawn

pytestmark = [
    pytest.mark.skipif(not probe().available, reason="oneDNN is not installed"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler"),
]


def of_one(expression: str, x: np.ndarray) -> np.ndarray:
    """The expression of every element, x0."""
    result, view = np.empty_like(x), View("float32", (1,))
    run(elements([Statement("t0", "float32", expression)], [view], [Written("t0", view)], x.shape),
        x, result)  # fmt: skip
    return result


# ---------------------------------------------------------------- functions

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-45, -103.9, -104.5, 88.8, 89.5, 1e30]


def units_off(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """How far results are from the exact ones, in units of the last place."""
    rounded = np.abs(exact.astype(np.float32))
    unit = np.spacing(np.maximum(rounded, np.finfo(np.float32).tiny)).astype(np.float64)
    return np.asarray(np.abs(found.astype(np.float64) - exact) / unit)


def error_function(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


@pytest.mark.parametrize(
    ("name", "exact", "limit", "units"),
    [
        ("expf", np.exp, 88.7, 1.1),
        ("tanhf", np.tanh, 10.0, 1.4),
        ("erff", error_function, 5.0, 1.1),
    ],
)
def test_a_function_is_as_near_as_it_says(
    name: str, exact: Callable[[Any], Any], limit: float, units: float
) -> None:
    draw = np.random.default_rng(0)
    x = np.concatenate(
        [
            draw.uniform(-limit, limit, 500_000),
            draw.standard_normal(200_000) * 0.3,
            10.0 ** draw.uniform(-30, 0, 100_000),
        ]
    ).astype(np.float32)
    assert units_off(of_one(f"{name}(x0)", x), exact(x.astype(np.float64))).max() < units
    special = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        wanted = exact(special.astype(np.float64)).astype(np.float32)
    found = of_one(f"{name}(x0)", special)
    np.testing.assert_allclose(found, wanted, rtol=2e-7, atol=2e-45)
    assert (np.signbit(found) == np.signbit(wanted))[1:].all()


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (257, 100)])
def test_rows_of_softmax(shape: tuple[int, int], log: bool) -> None:
    assert np.prod((257, 100)) > WORTH_A_THREAD  # the last shape is shared by threads
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 5
    y = np.empty_like(x)
    run(rows.softmax(*shape, log), x, y)
    exact = torch.from_numpy(x).double()
    wanted = exact.log_softmax(-1) if log else exact.softmax(-1)
    # What is left after the largest is subtracted is rounded, and goes into an exponent.
    np.testing.assert_allclose(y, wanted, rtol=4e-6)
    outer, inner = np.cos(x), np.empty_like(x)
    run(rows.softmax_backward(*shape, log), outer, y, inner)
    leaf = exact.clone().requires_grad_()
    result = leaf.log_softmax(-1) if log else leaf.softmax(-1)
    result.backward(torch.from_numpy(outer).double())
    assert leaf.grad is not None
    np.testing.assert_allclose(inner, leaf.grad, rtol=1e-5, atol=2e-6)


def test_softmax_makes_no_denormals_of_a_mask() -> None:
    x = np.random.default_rng(0).standard_normal((64, 49)).astype(np.float32)
    x[:, 20:] -= np.linspace(80, 120, 29, dtype=np.float32)
    y = np.empty_like(x)
    run(rows.softmax(*x.shape, log=False), x, y)
    least = np.finfo(np.float32).tiny
    wanted = torch.from_numpy(x).double().softmax(-1).numpy()
    assert ((wanted > 0) & (wanted < least)).any()
    # A term that is normal may still be divided to a denormal.
    assert (y[wanted * 49 < least] == 0).all()
    np.testing.assert_allclose(y[wanted > 2 * least], wanted[wanted > 2 * least], rtol=4e-6)


def test_rows_without_an_answer_are_pytorchs() -> None:
    x = np.zeros((4, 5), np.float32)
    x[0], x[1, 2], x[2, 0], x[3, 1] = -np.inf, np.nan, np.inf, -np.inf
    y = np.empty_like(x)
    run(rows.softmax(*x.shape, False), x, y)
    np.testing.assert_allclose(y, torch.from_numpy(x).softmax(-1), equal_nan=True)


@pytest.mark.parametrize("function", ["sum", "mean", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rows_are_reduced(function: str, dtype: str) -> None:
    if (function, dtype) == ("mean", "int64"):
        pytest.skip("means are of floats")
    x = (np.random.default_rng(0).standard_normal((9, 33)) * 9).astype(dtype)
    if dtype == "float32":
        x[3, 5], x[4, 0] = np.nan, np.nan
    y = np.empty(9, dtype)
    run(rows.reduction(function, dtype, dtype, 9, 33), x, y)
    name = {"maximum": "max", "minimum": "min"}.get(function, function)
    np.testing.assert_allclose(y, getattr(x.astype(np.float64), name)(1), rtol=1e-6)


@pytest.mark.parametrize(
    "shape", [(1, 2, 2), (3, 9, 33), (1, 1000, 64), (2, 257, 200), (1, 3, 20_000), (32, 2, 1000)]
)
@pytest.mark.parametrize("function", columns.REDUCED)
def test_columns_are_reduced(shape: tuple[int, int, int], function: str) -> None:
    """Less than a block of columns, whole ones, and a rest; by one thread and by several."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) + 1
    x[-1, -1, -1] = np.nan
    y = np.full((shape[0], shape[2]), np.nan, np.float32)
    run(columns.reduction(function, *shape), x, y)
    name = {"maximum": "max", "minimum": "min"}.get(function, function)
    exact = getattr(x.astype(np.float64), name)(1)
    np.testing.assert_allclose(y, exact, rtol=2e-6, atol=1e-6)
    assert np.isnan(y).sum() == 1


class Reduced(nn.Module):
    """A convolution, and its result over some axes."""

    def __init__(self, function: str, axes: tuple[int, ...], keep: bool) -> None:
        super().__init__()
        self.layer, self.axes, self.keep = nn.Conv2d(3, 16, 2), axes, keep
        self.function = getattr(torch, function)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x), self.axes, self.keep).flatten().expand(4, -1)


@pytest.mark.slow
@examples(40)
@given(
    function=st.sampled_from(["sum", "mean", "amax", "amin"]),
    axes=st.sets(st.integers(0, 3), min_size=1),
    keep=st.booleans(),
    layout=st.sampled_from(["any", "channels_last", "blocked"]),
)
def test_reductions_over_any_axes_in_any_order(
    function: str, axes: set[int], keep: bool, layout: str
) -> None:
    """Also over axes that are no neighbours in memory, one run of them after the other."""
    from support.direct.in_process import assert_right
    from support.direct.onednn_in_process import LAYOUTS, compute, lower

    torch.manual_seed(0)
    module = Reduced(function, tuple(sorted(axes)), keep).eval()
    network = lower(module, torch.randn(4, 3, 6, 8), "infer")
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))


@pytest.mark.parametrize("inner", [1, 63, 64, 65, 1000, 4100])
@pytest.mark.parametrize("columns", [1, 7, 500])
@pytest.mark.parametrize("added", ["", "bias", "residual", "both"])
def test_a_line_times_a_matrix(inner: int, columns: int, added: str) -> None:
    """Less than a piece, whole ones, and a rest; rows that are read side by side; by one thread and
    by several."""
    draw = np.random.default_rng(inner)
    x, weight, bias, residual = (
        draw.standard_normal(shape).astype(np.float32)
        for shape in (inner, (columns, inner), columns, columns)
    )
    biased, more = added in ("bias", "both"), added in ("residual", "both")
    given = [bias] * biased + [residual] * more
    y = np.full(columns, np.nan, np.float32)
    run(line_product(inner, columns, biased, more, None), x, weight, *given, y)
    exact = weight.astype(np.float64) @ x + sum(array.astype(np.float64) for array in given)
    np.testing.assert_allclose(y, exact, rtol=2e-6, atol=3e-7 * inner**0.5 + 1e-6)


def test_a_line_is_activated_after_all_is_added() -> None:
    x, weight = np.ones(3, np.float32), np.eye(3, dtype=np.float32)
    bias, residual = np.array([[-2, 0.5, 0], [0.5, -1, -1.25]], np.float32)
    y = np.empty(3, np.float32)
    relu = Activation(name="clip", numbers=(0.0, np.inf))
    run(line_product(3, 3, True, True, relu), x, weight, bias, residual, y)
    assert y.tolist() == [0.0, 0.5, 0.0]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("index", [np.int64, np.int32])
@pytest.mark.parametrize(("outer", "count", "width"), [(1, 3, 1), (2, 1, 7), (3, 70, 100)])
def test_rows_by_their_indices(
    dtype: type[Any], index: type[Any], outer: int, count: int, width: int
) -> None:
    """By one thread and by several; an index out of bounds is the nearest one."""
    draw = np.random.default_rng(0)
    x = draw.integers(0, 200, (outer, 9, width)).astype(dtype)
    indices = draw.integers(-3, 12, count).astype(index)
    y = np.zeros((outer, count, width), dtype)
    run(rows_taken(x.dtype.name, indices.dtype.name, outer, 9, count, width), x, indices, y)
    assert (y == np.take(x, indices, axis=1, mode="clip")).all()


@pytest.mark.parametrize("index", [np.int64, np.int32])
@pytest.mark.parametrize(("outer", "count", "width"), [(1, 3, 1), (2, 1, 7), (3, 70, 100)])
def test_places_by_indices_of_several_axes(
    index: type[Any], outer: int, count: int, width: int
) -> None:
    """A negative index counts from the end; one that is out of bounds is the nearest one."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((outer, 9, 4, 3, width)).astype(np.float32)
    sizes = 9, 4, 3
    indices = [draw.integers(-size, size, count).astype(index) for size in sizes]
    y = np.zeros((outer, count, width), np.float32)
    kernel = places_taken("float32", np.dtype(index).name, outer, sizes, count, width)
    run(kernel, x, *indices, y)
    assert (y == x[:, indices[0], indices[1], indices[2]]).all()
    indices[0][0], indices[1][0] = 20, -20
    run(kernel, x, *indices, y)
    assert (y[:, 0] == x[:, 8, 0, indices[2][0]]).all()


@pytest.mark.parametrize("outer", [1, 5, 400])
def test_parts_side_by_side(outer: int) -> None:
    draw = np.random.default_rng(0)
    given = [draw.standard_normal((outer, width)).astype(np.float32) for width in (1, 30, 17)]
    y = np.zeros((outer, 48), np.float32)
    run(parts_joined("float32", outer, (1, 30, 17)), *given, y)
    assert (y == np.concatenate(given, 1)).all()


@pytest.mark.slow
def test_rows_of_truth_values() -> None:
    x = np.array([[0, 0, 1], [0, 0, 0], [1, 1, 1]], np.bool_)
    for function, wanted in (("maximum", x.any(1)), ("minimum", x.all(1))):
        y = np.empty(3, np.bool_)
        run(rows.reduction(function, "bool", "bool", 3, 3), x, y)
        assert (y == wanted).all()
    counts = np.empty(3, np.int64)
    run(rows.reduction("sum", "bool", "int64", 3, 3), x, counts)
    assert (counts == x.sum(1)).all()


# ---------------------------------------------------------------- groups


@pytest.mark.slow
@examples(8)
@given(steps=steps_drawn, shape=st.sampled_from([(2, 3, 4, 8), (4, 16), (2, 5, 6)]))
def test_networks_of_functions_and_views(steps: list[Step], shape: tuple[int, ...]) -> None:
    """Broadcast, permuted, sliced and joined, as groups and one by one."""
    from support.direct.in_process import assert_right
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    x = torch.randn(shape)
    lowered = lower(Returned(Drawn(steps, x)), x, "infer")
    assert_right(lowered, compute(lowered))
    assert_right(lowered, compute(lowered, generates=False))


class Returned(nn.Module):
    """A function of the first result of a network, which might be a view of its input."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.module(x)[0]
        return torch.where(result > 0, result, 2 * result)


class Copies(nn.Module):
    """Every copy, of floats and of truth values."""

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for y in (x * 2, x > 0):
            turned = y.transpose(0, 1).contiguous()
            found += [
                y.flip(0, 2), y[:, 1::2], y[..., 1:3], nn.functional.pad(y, (1, 0, -1, 2)),
                turned.unsqueeze(1).expand(-1, 3, -1, -1).reshape(-1), y[:, :1].expand(-1, 5, -1),
            ]  # fmt: skip
        sums = [y.sum(-1) for y in (x, x > 0)]
        found += [*sums, x.amax((1, 2)), (x > 0).any(-1)]
        return torch.cat([(y.float() * 1.5).flatten() for y in found])


@pytest.mark.slow
def test_copies_and_reductions_are_generated() -> None:
    from support.direct.in_process import assert_right
    from support.direct.onednn_in_process import Running, compute, lower

    network = lower(Copies(), torch.randn(4, 6, 8), "infer")
    steps = Running(network).built.plan.steps
    assert not [step.operation for step in steps if step.implementation == "numpy"]
    assert_right(network, compute(network))
    assert_right(network, compute(network, generates=False))


class Mixed(nn.Module):
    """Functions between layers, of every kind of value, in the layers' layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 16, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(1, 16, 1, 1))
        self.linear = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(x)
        y = torch.exp(-y * y) * self.scale + torch.tanh(y)
        z = self.linear(torch.where(y > 0.2, y * 2, y.abs()).mean((2, 3)))
        result: Tensor = (z * torch.erf(z)).softmax(-1) + (z > 0).float()
        return result


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["any", "channels_last", "blocked"])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_groups_follow_the_layouts_of_layers(layout: str, mode: Mode) -> None:
    from support.direct.in_process import assert_right
    from support.direct.onednn_in_process import LAYOUTS, Running, compute, lower

    torch.manual_seed(0)
    network = lower(Mixed(), torch.randn(4, 3, 16, 16), mode)
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))
    steps = Running(network, lambda _: LAYOUTS[layout]).built.plan.steps
    by = [step.implementation for step in steps if step.operation in ("fused", "softmax")]
    assert by and set(by) == {"generated"}


# ---------------------------------------------------------------- compilers


def test_a_kernel_that_does_not_compile_is_an_error(tmp_path: Path) -> None:
    from golow.levels.direct.onednn.run.kernel_compilation import Workshop

    compiler = find_compiler()
    assert compiler is not None
    with pytest.raises(GolowError, match=r"generated kernels:(.|\n)*no_such_name"):
        Workshop(compiler, tmp_path).functions(["static void body() { no_such_name; }"])


@pytest.mark.slow
def test_kernels_are_compiled_once(tmp_path: Path) -> None:
    from golow.levels.direct.onednn.run.kernel_compilation import Workshop

    compiler = find_compiler()
    assert compiler is not None
    codes: Sequence[str] = [rows.softmax(2, 3, log).code for log in (False, True)]
    assert Workshop(compiler, tmp_path).functions(codes).keys() == set(codes)
    absent = Compiler(("/no/such/compiler", *compiler.command[1:]), compiler.version)
    with pytest.raises(OSError, match="such"):
        Workshop(absent, tmp_path).functions(codes)
    [folder] = (tmp_path / "kernels").iterdir()
    (folder / "kernels.so").unlink()  # it is loaded: its pages must stay
    (folder / "kernels.so").write_bytes(b"damaged")
    workshop = Workshop(compiler, tmp_path)
    assert workshop.functions(codes)
    assert len(workshop.notes) == 1


def test_without_a_compiler_a_note_says_what_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is as before there were kernels, and layouts are chosen for it."""
    from golow.levels.direct.onednn.run.kernel_compilation import NO_KERNELS
    from golow.levels.direct.onednn.run.program import OneDnn
    from support.direct.onednn_subjects import choose_layouts, folder_of, make_subject, subject_of

    subject = make_subject("infer", tmp_path)
    with_kernels = folder_of(subject)
    monkeypatch.setenv("CXX", "/no/such/compiler")
    folder = folder_of(subject_of(subject.bundle, tmp_path / "cache"))
    assert folder != with_kernels
    choose_layouts(folder, "any")
    program = OneDnn(folder)
    assert program.load(subject.bundle.folder).notes == (NO_KERNELS,)
    assert not program.built.codes
    program.run_batch(0)
