"""What the backend records for a GPU, and the precision in which PyTorch computes there. Neither
needs a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import default_partition
from torch.fx.experimental.proxy_tensor import make_fx

from golow.compiled.dynamo.device import CPU, OF_CUDNN, in_tf32, traced_for

ATEN = torch.ops.aten
GPU = torch.device("cuda", 0)


@pytest.mark.parametrize("convolutions", [False, True])
@pytest.mark.parametrize("products", [False, True])
def test_plans_compute_in_tf32_where_pytorch_does(convolutions: bool, products: bool) -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=convolutions):
        torch.backends.cuda.matmul.allow_tf32 = products
        try:
            found = in_tf32(GPU)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    assert (ATEN.convolution_backward.default in found) is convolutions
    assert (ATEN.addmm.default in found) is (convolutions and products)
    assert in_tf32(CPU) == frozenset()


def recorded(function: Callable[..., Any], *given: Tensor) -> list[Any]:
    """The operations that AOTAutograd records of a function and its gradient."""
    found: list[Any] = []

    def listed(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    def backend(traced: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        compile_by = aot_autograd(
            fw_compiler=listed, bw_compiler=listed, partition_fn=default_partition
        )
        with traced_for(GPU):
            made: Callable[..., Any] = compile_by(traced, inputs)
        return made

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*given).sum().backward()
    return found


def test_batch_norm_of_cudnn_is_recorded_as_the_one_of_every_device() -> None:
    """So that cuDNN may stay on: it decides how convolutions lay out their results."""

    def norm(x: Tensor, scale: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        made = ATEN.cudnn_batch_norm(x, scale, scale, mean, variance, True, 0.1, 1e-5)
        found: Tensor = made[0] * 2
        return found

    scale = torch.ones(3, requires_grad=True)
    found = recorded(norm, torch.randn(2, 3, 4, 4), scale, torch.zeros(3), torch.ones(3))
    assert ATEN._native_batch_norm_legit_functional.default in found
    assert ATEN.native_batch_norm_backward.default in found
    with traced_for(GPU):
        assert torch.backends.cudnn.enabled


def test_samples_of_cudnn_are_recorded_as_those_of_every_device() -> None:
    def sampled(x: Tensor, grid: Tensor) -> Any:
        y = ATEN.cudnn_grid_sampler(x, grid)
        return y, *torch.autograd.grad(y.square().sum(), (x, grid))

    def wanted(x: Tensor, grid: Tensor) -> Any:
        y = torch.nn.functional.grid_sample(x, grid, align_corners=True)
        return y, *torch.autograd.grad(y.square().sum(), (x, grid))

    x = torch.randn(2, 3, 5, 6).requires_grad_()
    grid = torch.empty(2, 4, 4, 2).uniform_(-1.2, 1.2).requires_grad_()
    traced = make_fx(sampled, decomposition_table=OF_CUDNN)(x, grid)
    for one, other in zip(traced(x, grid), wanted(x, grid), strict=True):
        torch.testing.assert_close(one, other)
