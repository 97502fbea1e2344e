"""Causes that keep a model from running are told before a worker starts: one sentence that names
what it is, and one thing to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import golow
from golow.records.errors import GolowError
from golow.records.workload import Mode
from golow.workload.prepare import prepare
from golow.workload.request import Request


def x(rows: int = 8) -> Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(0))


class Second(nn.Module):
    """Takes a second input that need not be there."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, a: Tensor, b: Any = None) -> Tensor:
        found: Tensor = self.layer(a)
        return found if b is None else found * b


class Autocasts(Second):
    """enabled: whether the region turns autocast on, or off."""

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.enabled = enabled

    def forward(self, a: Tensor, b: Any = None) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enabled):
            return super().forward(a, b).float()


class Detached(Second):
    def forward(self, a: Tensor, b: Any = None) -> Tensor:
        return super().forward(a, b).detach()


def with_nan() -> nn.Module:
    module = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    module[1].weight.data[2, 1] = float("nan")
    return module


class Forces(Second):
    """The gradient of its output."""

    def forward(self, a: Tensor, b: Any = None) -> Tensor:
        a = a.detach().requires_grad_()
        (found,) = torch.autograd.grad(super().forward(a, b).sum(), a)
        return found


class Looks(Second):
    def forward(self, a: Tensor, b: Any = None) -> Tensor:
        return self.layer.weight[a]


class Described(Second):
    def get_extra_state(self) -> str:
        return "of its own"


def weight_normed() -> nn.Module:
    """In the older way, which keeps the computed weight."""
    return nn.utils.weight_norm(nn.Linear(5, 5))


def pruned() -> nn.Module:
    layer = nn.Linear(5, 5)
    prune.l1_unstructured(layer, "weight", 0.5)  # type: ignore[no-untyped-call]
    return layer


def norm(training: bool = True) -> nn.Module:
    module = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5))
    module[1].train(training)
    return module


CAUSES: dict[str, tuple[Any, Any, Mode, str, str]] = {
    "no parameters": (nn.ReLU(), x(), "train", "ReLU has no parameters", "in inference"),
    "all frozen": (
        nn.Linear(5, 5).requires_grad_(False), x(), "train",
        "all 2 parameters of Linear are frozen", "requires_grad_",
    ),
    "sparse gradients": (
        nn.Sequential(nn.Embedding(5, 2, sparse=True)), torch.zeros(2, 3, dtype=torch.int64),
        "train", "the gradient of 0 is a sparse tensor", "sparse=True",
    ),
    "an empty batch": (nn.Linear(5, 5), x(0), "infer", "an empty batch: .* is 0x5", "one sample"),
    "a number": (Second(), (x(), 2), "infer", r"example_inputs\[1\] is of type int", "leave out"),
    "None": (Second(), (x(), None), "infer", r"example_inputs\[1\] is None", "have a default"),
    "tensors in a dictionary": (
        Second(), ({"a": x(), "b": x()},), "infer",
        "is of type dict", r"forward\(self, a, b\), which puts",
    ),
    "tensors in a list": (Second(), (x(), [x()]), "infer", "of type list", r"\(self, \*tensors\)"),
    "ids": (nn.Embedding(5, 2), x(), "infer", "takes whole numbers", "torch.int64"),
    "indices": (Looks(), x(), "infer", "takes whole numbers", "torch.int64"),
    "uncopied": (weight_normed(), x(), "infer", "cannot be copied", "parametrizations.weight_norm"),
    "pruned": (pruned(), x(), "infer", "cannot be copied", r"prune\.remove\(layer, NAME\)"),
    "half weights": (nn.Linear(5, 5).half(), x(), "infer", "are float16, and", "in float16, or"),
    "None by name": (Second(), {"a": x(), "b": None}, "infer", r"\['b'\] is None", "leave out"),
    "an array": (nn.Linear(5, 5), x().numpy(), "infer", r"\[0\] is of type ndarray", "as_tensor"),
    "float64": (nn.Linear(5, 5), x().double(), "infer", r"\[0\] is float64", r"\.float\(\)"),
    "half": (Second(), (x(), x().half()), "infer", r"\[1\] is float16", r"\.float\(\)"),
    "no values": (nn.Linear(5, 5, device="meta"), x(), "infer", "meta device: weight", "to_empty"),
    "NaN": (with_nan(), x(), "infer", r"NaN in 1\.weight \(1 of 25 elements\)", "again"),
    "scripted": (torch.jit.script(nn.Linear(5, 5)), x(), "infer", "a TorchScript mod", "nn.Module"),
    "a scripted layer": (
        nn.Sequential(nn.Linear(5, 5), torch.jit.script(nn.ReLU())), x(), "infer",
        "1 of Sequential is a TorchScript module", "the layer that was scripted",
    ),
    "traced": (torch.jit.trace(nn.Linear(5, 5), x()), x(), "infer", "TorchScript", "nn.Module"),
    "parallel": (nn.DataParallel(nn.Linear(5, 5)), x(), "infer", "DataParallel", r"model\.module"),
    "compiled": (torch.compile(nn.Linear(5, 5)), x(), "infer", "OptimizedModule", "_orig_mod"),
    "forces": (Forces(), x(), "infer", "takes gradients in its forward pass", "enable_grad"),
    "no tensor": (Described(), x(), "infer", "_extra_state in the state .* type str", "leave it"),
    "one value": (norm(), x(1), "train", "trained on a batch with one value", "2 or more"),
    "two inputs": (nn.Bilinear(5, 5, 2), x(), "infer", "missing 1 required", "example_inputs="),
    "a name": (nn.Linear(5, 5), {"y": x()}, "infer", "keyword argument 'y'", "example_inputs="),
    "autocast": (Autocasts(True), x(), "infer", "autocast to bfloat16", "leave the autocast out"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_a_known_cause_is_one_sentence(name: str) -> None:
    module, inputs, mode, said, hint = CAUSES[name]
    request = Request(module, inputs, mode=mode, loss="mse_loss" if mode == "train" else None)
    with pytest.raises(GolowError, match=said) as caught:
        prepare(request)
    assert "\n" not in caught.value.message
    assert caught.match(hint)


def test_a_norm_over_all_ranks_is_refused_for_several() -> None:
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(norm())
    with pytest.raises(GolowError, match="1 is a SyncBatchNorm, whose statistics are those of all"):
        prepare(Request(synced, x(), mode="train", loss="mse_loss", ranks=2))


@pytest.mark.parametrize(
    ("module", "inputs", "mode"),
    [
        (nn.ReLU(), x(), "infer"),
        (nn.Linear(5, 5).requires_grad_(False), x(), "infer"),
        (nn.Linear(5, 5).double(), x().double(), "infer"),
        (norm(training=False), x(1), "train"),
        (norm(), x(1), "infer"),
        (Autocasts(False), x(), "infer"),
        (nn.Sequential(nn.LazyLinear(5), nn.ReLU()), x(), "train"),
    ],
)
def test_what_is_no_cause_is_prepared(module: nn.Module, inputs: Tensor, mode: Mode) -> None:
    loss = "mse_loss" if mode == "train" else None
    assert prepare(Request(module, inputs, mode=mode, loss=loss)).workload.batch == len(inputs)


def test_a_module_that_calls_another_one_wrongly_shows_its_line() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Bilinear(5, 5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    with pytest.raises(GolowError, match=r"return self\.inner\(x\)"):
        prepare(Request(Outer(), x()))


def test_infinite_weights_may_be_meant() -> None:
    module = nn.Linear(5, 5)
    module.register_buffer("mask", torch.full((5,), float("-inf")))
    prepare(Request(module, x()))


def test_a_loss_that_depends_on_no_parameter() -> None:
    """Known from the graph, before a worker is asked for anything."""
    with pytest.raises(GolowError, match="the loss of Detached depends on none of its param"):
        golow.compare(Detached(), x(), mode="train", loss="mse_loss", levels=["eager"], quiet=True)


def test_layers_keep_their_flags() -> None:
    module = prepare(Request(norm(training=False), x(), mode="train", loss="mse_loss")).module
    assert [layer.training for layer in module.modules()] == [True, True, False]
    whole = norm().eval()  # the whole module in eval() is only not told to train
    module = prepare(Request(whole, x(), mode="train", loss="mse_loss")).module
    assert all(layer.training for layer in module.modules())
    assert not any(layer.training for layer in prepare(Request(norm(), x())).module.modules())
