"""MXNet 1.9.1: the functions of `mxnet.nd`, and `mxnet.autograd`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

# Computed by the thread that asks. Those of the other engine use the processor between iterations,
# too, which golow does not take for a time of iterations.
os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")

import mxnet as mx
from graph_program import GraphExecution, Transposed, serve
from mxnet import autograd, nd


class MXNet(GraphExecution):
    """A step waits for MXNet's engine, in case it computes in other threads."""

    name, module = "mxnet", nd

    def put(self, array: Any) -> Any:
        return nd.array(np.atleast_1d(array), dtype=array.dtype)  # it has no scalars

    def store(self, kind: str, name: str, array: Any) -> None:
        tensor = self.put(array)
        if kind == "parameter":
            tensor.attach_grad()
        self.state.setdefault(kind, {})[name] = tensor

    def assign(self, kind: str, name: str, value: Any) -> None:
        self.state[kind][name][:] = value

    def taken(self, key: tuple[str, str], given: Any) -> Any:
        array = given.asnumpy().astype(self.dtypes.get(key, "float32"))
        shapes = {("loss", "loss"): (), ("steps", "steps"): ()}
        counter = key[0] == "buffer" and key[1].endswith("num_batches_tracked")
        return array.reshape(()) if counter or key in shapes else array

    def start_draws(self) -> None:
        mx.random.seed(self.workload.seed % 2**31)

    def gradient(self, parameter: Any) -> Any:
        return parameter.grad

    def differentiated(self, forward: Callable[[], Any]) -> Any:
        with autograd.record(train_mode=True):
            loss = forward()
        loss.backward()
        return loss

    def wait(self) -> None:
        nd.waitall()

    def aten(self) -> dict[str, Callable[..., Any]]:
        return {
            "aten.convolution.default": convolution,
            "aten.relu.default": nd.relu,
            "aten.max_pool2d_with_indices.default": max_pool,
            "aten._adaptive_avg_pool2d.default": adaptive,
            "aten.view.default": nd.reshape,
            "aten.native_dropout.default": self.dropped,
            "aten.addmm.default": linear,
            "aten._log_softmax.default": lambda x, axis, half: nd.log_softmax(x, axis=axis),
            "aten.nll_loss_forward.default": nll_loss,
            "aten.add.Tensor": lambda a, b: a + b,
            "aten.mean.dim": lambda x, axes, keep=False: nd.mean(x, axis=axes, keepdims=keep),
            "aten._native_batch_norm_legit_functional.default": batch_norm,
        }

    def dropped(self, x: Any, probability: float, train: bool) -> tuple[Any, None]:
        return (nd.Dropout(x, p=probability) if self.dropout else x), None


def convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> Any:
    further = () if bias is None else (bias,)
    return nd.Convolution(
        x, weight, *further, kernel=weight.shape[2:], stride=stride, pad=padding, dilate=dilation,
        num_filter=weight.shape[0], num_group=rest[2], no_bias=bias is None,
    )  # fmt: skip


def max_pool(
    x: Any, kernel: Any, stride: Any, padding: Any = (0, 0), dilation: Any = 1, ceil: bool = False
) -> tuple[Any, None]:
    convention = "full" if ceil else "valid"
    pooled = nd.Pooling(
        x, kernel=kernel, stride=stride, pad=padding, pool_type="max", pooling_convention=convention
    )
    return pooled, None


def adaptive(x: Any, size: Any) -> Any:
    same = tuple(x.shape[2:]) == tuple(size)
    return x if same else nd.contrib.AdaptiveAvgPooling2D(x, output_size=size)


def linear(bias: Any, x: Any, weight: Transposed) -> Any:
    return nd.FullyConnected(x, weight.weight, bias, num_hidden=bias.shape[0])


def nll_loss(logs: Any, target: Any, *settings: Any) -> tuple[Any, None]:
    return -nd.mean(nd.pick(logs, target, axis=1)), None


def batch_norm(
    x: Any, scale: Any, shift: Any, mean: Any, variance: Any, train: bool, momentum: float, eps: Any
) -> tuple[Any, ...]:
    """MXNet moves what it is given with the variance as it is, and PyTorch with the corrected one:
    the running statistics are moved here."""
    channels = x.shape[1]
    count = x.size // channels
    given = nd.zeros(channels), nd.ones(channels)
    normed, found, _ = nd.BatchNorm(
        x, scale, shift, *given, eps=eps, fix_gamma=False, output_mean_var=True
    )
    with autograd.pause():
        distance = nd.broadcast_sub(x, found.reshape((1, -1, 1, 1)))
        corrected = nd.sum(nd.square(distance), axis=(0, 2, 3)) / max(count - 1, 1)
        moved = [
            (1 - momentum) * old + momentum * new
            for old, new in ((mean, found), (variance, corrected))
        ]
    return normed, found, None, *moved


if __name__ == "__main__":
    serve(MXNet)
