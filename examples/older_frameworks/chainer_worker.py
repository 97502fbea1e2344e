"""Chainer 7.8.1: `chainer.functions` on NumPy's arrays, and its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
from graph_program import GraphExecution, Transposed, serve

BLOCK = 1 << 18  # elements: a few arrays of them fit into the cache


class Chainer(GraphExecution):
    """Its parameters are `chainer.Parameter`, all else NumPy's arrays and `chainer.Variable`."""

    name, module = "chainer", np

    def put(self, array: Any) -> Any:
        return np.array(array)

    def store(self, kind: str, name: str, array: Any) -> None:
        tensor = chainer.Parameter(np.array(array)) if kind == "parameter" else np.array(array)
        self.state.setdefault(kind, {})[name] = tensor

    def assign(self, kind: str, name: str, value: Any) -> None:
        held = self.state[kind][name]
        (held.array if kind == "parameter" else held)[...] = getattr(value, "array", value)

    def taken(self, key: tuple[str, str], given: Any) -> Any:
        array = np.array(getattr(given, "array", given), self.dtypes.get(key, "float32"))
        return array.reshape(()) if key == ("steps", "steps") else array

    def start_draws(self) -> None:
        np.random.seed(self.workload.seed % 2**31)

    def _step(self, name: str) -> None:
        """Change a weight block by block. Intermediate results of a whole weight would be memory
        that the system clears in every step, which may take longer than the step."""
        parameter = self.state["parameter"][name]
        self.found["gradient", name] = parameter.grad  # the next step makes another
        arrays = {kind: self.state[kind][name].reshape(-1) for kind in self._kept()}
        arrays["parameter"], gradient = parameter.array.reshape(-1), parameter.grad.reshape(-1)
        for start in range(0, gradient.size, BLOCK):
            part = slice(start, start + BLOCK)
            kept = {kind: arrays[kind][part] for kind in self._kept()}
            now = arrays["parameter"][part]
            steps = self.state["steps"]
            for kind, value in self._update(kept, now, gradient[part], self.rate, steps).items():
                arrays[kind][part] = value

    def differentiated(self, forward: Callable[[], Any]) -> Any:
        for parameter in self.state["parameter"].values():
            parameter.cleargrad()
        with chainer.using_config("train", True):
            loss = forward()
            loss.backward()
        return loss

    def aten(self) -> dict[str, Callable[..., Any]]:
        return {
            "aten.convolution.default": convolution,
            "aten.relu.default": F.relu,
            "aten.max_pool2d_with_indices.default": max_pool,
            "aten._adaptive_avg_pool2d.default": adaptive,
            "aten.view.default": F.reshape,
            "aten.native_dropout.default": self.dropped,
            "aten.addmm.default": linear,
            "aten._log_softmax.default": lambda x, axis, half: F.log_softmax(x, axis=axis),
            "aten.nll_loss_forward.default": nll_loss,
            "aten.add.Tensor": lambda a, b: a + b,
            "aten.mean.dim": lambda x, axes, keep=False: F.mean(x, axis=tuple(axes), keepdims=keep),
            "aten._native_batch_norm_legit_functional.default": batch_norm,
        }

    def dropped(self, x: Any, probability: float, train: bool) -> tuple[Any, None]:
        return (F.dropout(x, probability) if self.dropout else x), None


def convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> Any:
    return F.convolution_2d(x, weight, bias, stride, padding, dilate=dilation, groups=rest[2])


def max_pool(
    x: Any, kernel: Any, stride: Any, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> tuple[Any, None]:
    return F.max_pooling_2d(x, kernel, stride, padding, cover_all=ceil), None


def adaptive(x: Any, size: Any) -> Any:
    """Means over parts that share a pixel are products with each pixel's share."""
    if tuple(x.shape[2:]) == tuple(size):
        return x
    rows, columns = (shares(full, parts) for full, parts in zip(x.shape[2:], size, strict=True))
    return F.einsum("nchw,ih,jw->ncij", x, rows, columns)


def shares(size: int, parts: int) -> Any:
    found = np.zeros((parts, size), np.float32)
    for part in range(parts):
        start, end = part * size // parts, -(-(part + 1) * size // parts)
        found[part, start:end] = 1 / (end - start)
    return found


def linear(bias: Any, x: Any, weight: Transposed) -> Any:
    return F.linear(x, weight.weight, bias)


def nll_loss(logs: Any, target: Any, *settings: Any) -> tuple[Any, None]:
    return -F.mean(F.select_item(logs, target.astype(np.int32))), None


def batch_norm(
    x: Any, scale: Any, shift: Any, mean: Any, variance: Any, train: bool, momentum: float, eps: Any
) -> tuple[Any, ...]:
    """Chainer moves running statistics as PyTorch does."""
    moved = mean.copy(), variance.copy()
    normed = F.batch_normalization(
        x, scale, shift, eps=eps, running_mean=moved[0], running_var=moved[1], decay=1 - momentum
    )
    return normed, None, None, *moved


if __name__ == "__main__":
    serve(Chainer)
