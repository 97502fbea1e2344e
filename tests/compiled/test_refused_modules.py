"""Modules that PyTorch has changed into something else, or that a copy would change: golow.compile,
golow.compile_step and comparisons name what they are."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.compiled_modules import close, compiled

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

X, Y = torch.randn(4, 6), torch.randn(4, 3)
SGD = golow.Optimizer(learning_rate=0.01)


def scripted() -> nn.Module:
    return torch.jit.script(nn.Linear(6, 3))


def traced() -> nn.Module:
    return torch.jit.trace(nn.Linear(6, 3), X)  # type: ignore[no-untyped-call,no-any-return]


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyBatchNorm1d())


def without_values() -> nn.Module:
    return nn.Linear(6, 3, device="meta")


def tripled_gradient() -> nn.Module:
    module = nn.Linear(6, 3)
    module.weight.register_hook(lambda gradient: 3 * gradient)  # type: ignore[no-untyped-call]
    return module


def called_after_gradient() -> nn.Module:
    module = nn.Linear(6, 3)
    module.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return module


CHANGED = [
    (scripted, "RecursiveScriptModule is a TorchScript module"),
    (traced, "TopLevelTracedModule is a TorchScript module"),
    (without_values, "Linear is on the meta device: weight has a shape but no values"),
]
LAZY = (lazy, "Sequential has lazy layers: 0.weight gets its shape in the first pass")
WRAPPED = [
    (lambda: nn.DataParallel(nn.Linear(6, 3)), "wrapped in DataParallel"),
    (lambda: torch.compile(nn.Linear(6, 3)), "wrapped in OptimizedModule"),
]
HOOKED = [
    (tripled_gradient, r"parameter weight of Linear has a hook on its gradient \(register_hook\)"),
    (called_after_gradient, "has a hook on its gradient .register_post_accumulate_grad_hook."),
]


@pytest.mark.parametrize(
    ("module", "words", "level"),
    [*((*case, "onednn") for case in CHANGED), *((*case, "eager") for case in (*CHANGED, LAZY))],
)
def test_what_is_not_compiled(module: Callable[[], nn.Module], words: str, level: str) -> None:
    with pytest.raises(GolowError, match=words):
        golow.compile(module().eval(), X, level=level, quiet=True)


@pytest.mark.parametrize(("module", "words"), [*CHANGED, LAZY, *WRAPPED, *HOOKED])
def test_what_is_not_trained(module: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(GolowError, match=words):
        golow.compile_step(
            module().train(), nn.MSELoss(), optimizer=SGD, example=(X, Y), quiet=True
        )


@pytest.mark.parametrize(("module", "words"), [LAZY, *HOOKED])
def test_what_cannot_go_to_a_worker(module: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(GolowError, match=words):
        prepare(Request(module(), mode="train", example_inputs=(X,), targets=(Y,), loss="mse_loss"))


def test_a_hooked_gradient_does_not_matter_in_inference() -> None:
    module = tripled_gradient().eval()
    with compiled(module, X) as f:
        assert close(f(X), module(X))


def test_the_module_of_a_program_is_compiled_as_the_message_says() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    module = torch.export.export(Doubled(6, 3).eval(), (X,)).module()
    with pytest.raises(GolowError, match="training mode") as caught:
        compiled(module, X)
    assert "copy.deepcopy(module).eval()" in caught.value.hint
    with compiled(copy.deepcopy(module).eval(), X) as f:
        assert close(f(X), module(X))
