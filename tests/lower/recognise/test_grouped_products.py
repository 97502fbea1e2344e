"""Mixtures of experts: products of groups of rows, of which content says how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.cudnn.operators.grouped_product import kernel_of
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.onednn import level as onednn
from golow.lower.analysis.arithmetic import step_operations, work_by_layer
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.grouped_product import GroupedProduct, GroupedSums
from golow.lower.recognise.grouped_products import keep_grouped_products
from golow.records.workload import Mode, Precision
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.in_process import assert_right
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import drawn, gpu, on_host, run
from support.examples import examples
from support.graphs.lowering import Case

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

__all__ = ["gpu"]  # a fixture

needs_onednn = pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")
both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


def in_groups(ends: Tensor) -> Iterator[tuple[int, slice]]:
    start = 0
    for group, end in enumerate(ends.tolist()):
        yield group, slice(start, end)
        start = end


def transformers_product(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    made = input.new_zeros(len(input), weight.shape[2])
    for group, part in in_groups(offs):
        made[part] = input[part] @ weight[group]
    return made


def transformers_gradients(
    input: Tensor, weight: Tensor, offs: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor]:
    of_input, of_weight = torch.zeros_like(input), torch.zeros_like(weight)
    for group, part in in_groups(offs):
        of_input[part] = grad_output[part] @ weight[group].T
        of_weight[group] = input[part].T @ grad_output[part]
    return of_input, of_weight


def gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
    backward = torch.ops.transformers.grouped_mm_fallback_backward
    return (*backward(*ctx.saved_tensors, gradient), None)


def kept(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


# As transformers 5.24 names them, which is not installed where the tests run.
if not hasattr(torch.ops.transformers, "grouped_mm_fallback_backward"):
    name = "transformers::grouped_mm_fallback"
    product_of_torch = torch.library.custom_op(name, transformers_product, mutates_args=())
    product_of_torch.register_fake(lambda x, weight, _: x.new_empty(len(x), weight.shape[2]))
    product_of_torch.register_autograd(gradients, setup_context=kept)
    torch.library.custom_op(
        f"{name}_backward", transformers_gradients, mutates_args=()
    ).register_fake(lambda x, weight, _, gradient: (torch.empty_like(x), torch.empty_like(weight)))


class Mixture(nn.Module):
    """Each token goes to two of four experts, as models from transformers compute it."""

    def __init__(self, width: int = 16, inner: int = 32, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, inner, width) / 4)
        self.down = nn.Parameter(torch.randn(experts, inner, width) / 4)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        product = torch.ops.transformers.grouped_mm_fallback
        rows = x.flatten(0, 1)
        share, expert = self.router(rows).softmax(-1).topk(2)
        order = expert.flatten().argsort(stable=True)
        ends = functional.one_hot(expert.flatten(), len(self.up)).sum(0).cumsum(0).int()
        y = product(rows[order // 2], self.up.transpose(1, 2), ends)
        y = product(functional.gelu(y), self.down, ends)
        y = torch.zeros_like(y).index_copy(0, order, y) * share.flatten().unsqueeze(1)
        y = (rows + y.unflatten(0, (-1, 2)).sum(1)).unflatten(0, x.shape[:2])
        return self.head(y.mean(1))


def case(mode: Mode) -> Case:
    torch.manual_seed(0)
    return Case(Mixture(), torch.randn(2, 12, 16), mode=mode)


@both_modes
def test_products_are_kept_whole_with_their_weights_as_they_lie(mode: Mode) -> None:
    kept = keep_grouped_products()(case(mode).graph)
    found = [GroupedProduct.of(node) for node in kept.nodes]
    turned = [product.turned for product in found if product is not None]
    sums = [node for node in kept.nodes if GroupedSums.of(node) is not None]
    assert turned == ([True, False] if mode == "infer" else [True, False, True])
    assert len(sums) == (0 if mode == "infer" else 2)
    assert not any("grouped_mm" in node.op for node in kept.nodes)


@pytest.mark.parametrize("precision", ["bf16", "tf32", "ieee"])
@both_modes
def test_cudnn_has_a_kernel_in_inference_on_tensor_cores(mode: Mode, precision: Precision) -> None:
    """Elsewhere the products are unfolded."""
    of = case(mode)
    workload = msgspec.structs.replace(of.workload, precision=precision)
    graph = apply(apply(of.graph, CLEAN_UP), cudnn.passes(workload))
    kept = sum(GroupedProduct.of(node) is not None for node in graph.nodes)
    assert kept == (2 if mode == "infer" and precision != "ieee" else 0)
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES[precision], 1)
    assert_sound(made)


@pytest.mark.slow
def test_a_plan_of_cudnn_runs_on_this_processor() -> None:
    of = case("infer")
    workload = msgspec.structs.replace(of.workload, precision="tf32")
    graph = apply(apply(of.graph, CLEAN_UP), cudnn.passes(workload))
    tensors = {i.value.name: of.values[i.kind, i.target].detach() for i in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.slow
@needs_onednn
@both_modes
def test_a_mixture_of_experts_is_right_at_onednn(mode: Mode) -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    network = lower(Mixture(), torch.randn(2, 12, 16), mode)
    assert any(GroupedProduct.of(node) is not None for node in network.graph.nodes)
    assert_right(network, compute(network))


@needs_onednn
@both_modes
def test_steps_compute_what_the_captured_graph_needs(mode: Mode) -> None:
    """Each row meets one expert's matrix, not those of all."""
    from support.direct.onednn_in_process import Running, lower

    torch.manual_seed(0)
    steps = Running(lower(Mixture(), torch.randn(2, 12, 16), mode)).built.plan.steps
    needed = sum(layer.operations for layer in work_by_layer(case(mode).graph))
    assert sum(map(step_operations, steps)) == pytest.approx(needed, rel=0.1)


# ---------------------------------------------------------------- any groups

GROUPS = st.lists(st.integers(0, 9), min_size=1, max_size=5)


@needs_onednn
@settings(deadline=None)
@given(sizes=GROUPS, beyond=st.integers(0, 3), turned=st.booleans())
def test_any_groups_are_multiplied_and_summed(sizes: list[int], beyond: int, turned: bool) -> None:
    """Groups without rows, and rows in no group."""
    from golow.levels.direct.onednn.operators.grouped_product import product, sums

    rows, groups = sum(sizes) + beyond, len(sizes)
    draw = np.random.default_rng(0).standard_normal
    x, gradient = (draw((rows, n), np.float32) for n in (6, 7))
    weight = draw((groups, 7, 6) if turned else (groups, 6, 7), np.float32)
    ends = np.cumsum(sizes).astype(np.int32)
    wanted, summed = np.zeros((rows, 7), np.float32), np.zeros((groups, 6, 7), np.float32)
    for group, (last, size) in enumerate(zip(ends, sizes, strict=True)):
        part = slice(last - size, last)
        wanted[part] = x[part] @ (weight[group].T if turned else weight[group])
        summed[group] = x[part].T @ gradient[part]
    y, z = np.full_like(wanted, np.nan), np.full_like(summed, np.nan)
    product(x, weight, ends, y, turned)
    sums(x, gradient, ends, z)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(z, summed, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@examples(20)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 40, 64, 65, 130]), min_size=1, max_size=4),
    beyond=st.sampled_from([0, 3, 70]),
    inner=st.sampled_from([8, 24, 40, 104]),
    outputs=st.sampled_from([8, 72, 136]),
    dtype=st.sampled_from(["bfloat16", "float32"]),
)
def test_the_kernel_on_tensor_cores(
    sizes: list[int], beyond: int, inner: int, outputs: int, dtype: str
) -> None:
    """More chunks of depth than are copied ahead, and fewer; tiles that no group fills."""
    assert_multiplied(on_host, sizes, beyond, inner, outputs, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("sizes", [[512] * 4, [0, 2000, 48, 1], [3] * 64])
def test_the_kernel_on_a_gpu(gpu: Any, sizes: list[int], dtype: str) -> None:
    assert_multiplied(partial(run, gpu), sizes, 5, 520, 776, dtype)


def assert_multiplied(
    launch: Callable[[Kernel, Sequence[Tensor], Sequence[Tensor]], None],
    sizes: list[int],
    beyond: int,
    inner: int,
    outputs: int,
    dtype: str,
) -> None:
    """Against float64, with the product's own rounding: 8 bits of bf16, 10 of tf32 and fp16."""
    rows = max(sum(sizes) + beyond, 1)
    x, weight = drawn(rows, inner, dtype=dtype), drawn(len(sizes), outputs, inner, dtype=dtype)
    ends, y = torch.tensor(sizes).cumsum(0).int(), torch.empty(rows, outputs, dtype=x.dtype)
    launch(kernel_of(dtype, rows, *weight.shape), [x, weight, ends], [y])
    wanted = torch.zeros(y.shape, dtype=torch.float64)
    for group, part in in_groups(ends):
        wanted[part] = x[part].double() @ weight[group].double().T
    error = (y.double() - wanted).norm() / max(wanted.norm().item(), 1.0)
    assert error < (4e-3 if dtype == "bfloat16" else 1e-3)
    assert not y[sum(sizes) :].any()


def test_the_kernel_compiles() -> None:
    assert_compile(kernel_of(dtype, 2048, 4, 2048, 512) for dtype in ("bfloat16", "float32"))
