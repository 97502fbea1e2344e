"""Training steps that cannot be compiled, and batches that do not fit: each is named."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import golow
from golow.levels.called.training.training_step import TrainingStep
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from support.direct.training_steps import LOSS, batches, network, perceptron, stepped
from support.models.many_networks import Function

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

SGD = Optimizer(learning_rate=0.01)
X, Y = batches(1, (6,))[0]


@pytest.fixture(scope="module")
def step() -> TrainingStep:
    return stepped(perceptron(), SGD, (X, Y))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda step: step(X), "was given 0 targets; this was compiled for 1"),
        (lambda step: step(), "was given 0 targets"),
        (lambda step: step(X, Y, Y), "was given 2 targets"),
        (lambda step: step((X, X), Y), "was given 2 inputs; this was compiled for 1"),
        (lambda step: step({"x": X}, Y), "was given 1 inputs"),
        (lambda step: step(X[:, :5], Y), "input 0 is 8x5; this was compiled for samples of 6"),
        (lambda step: step(X[:4], Y), "target 0 is 8; this was compiled for samples of one number"),
        (lambda step: step(X[:0], Y[:0]), "input 0 is 0x6"),
        (lambda step: step(X.double(), Y), "input 0 is float64; this was compiled for float32"),
        (lambda step: step(X, Y.int()), "target 0 is int32; this was compiled for int64"),
        (lambda step: step(X, Y.to("meta")), "target 0 is on meta; this was compiled for the CPU"),
        (lambda step: step(X.clone().requires_grad_(), Y), "input 0 requires a gradient"),
        (lambda step: step("picture", Y), "the example is str, not tensors"),
        (lambda step: step.plan(3), r"there is no plan for batch 3"),
        (lambda step: setattr(step, "learning_rate", float("nan")), "nan is not finite"),
        (lambda step: setattr(step, "learning_rate", "fast"), "'fast' is not a number"),
        (lambda step: setattr(step, "learning_rate", -0.1), "-0.1 is negative"),
        (copy.deepcopy, "cannot be copied or pickled"),
        (pickle.dumps, "cannot be copied or pickled"),
    ],
)
def test_what_does_not_fit_is_named(
    step: TrainingStep, call: Callable[[TrainingStep], object], words: str
) -> None:
    before = step.state_dict()
    with pytest.raises(GolowError, match=words):
        call(step)
    assert all(torch.equal(item, before[name]) for name, item in step.state_dict().items())
    assert torch.isfinite(step(X, Y))


def with_attribute() -> nn.Module:
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) * self.calls

    return nn.Sequential(Counting(6, 5))


def with_unsaved_buffer() -> nn.Module:
    class Averaging(nn.Linear):
        mean: Tensor

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            self.mean.mul_(0.9).add_(y.detach().mean())
            return y * self.mean

    layer = Averaging(6, 5)
    layer.register_buffer("mean", torch.ones(()), persistent=False)
    return nn.Sequential(layer)


def with_function(function: Callable[[Tensor], Tensor]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Sequential(Function(function)))


def another_when_captured(x: Tensor) -> Tensor:
    return 10 * x if torch.compiler.is_compiling() else x


MODULES: dict[str, tuple[Callable[[], Any], str]] = {
    "eval": (lambda: perceptron().eval(), r"in eval\(\), and a step trains it"),
    "frozen": (lambda: perceptron().requires_grad_(False), "no parameter .* requires gradients"),
    "text": (lambda: "resnet50", "the model is str"),
    "float64": (lambda: perceptron().double(), "computes in float32, and the module is float64"),
    "operation": (lambda: with_function(torch.lgamma), "lgamma.* layer 1.0"),
    "random": (lambda: with_function(lambda x: x * torch.rand(5)), "onednn cannot run it: .*rand"),
    "selection": (lambda: with_function(lambda x: x[x[:, 0] > 9].sum() + x), "not capture"),
    "other": (
        lambda: with_function(another_when_captured),
        "does not compute what the module computes",
    ),
    "state": (with_attribute, "changes its attribute 0.calls in each pass"),
    "buffer": (with_unsaved_buffer, "changes the buffer 0.mean, which is not in the state dict"),
    "shapes": (lambda: nn.Linear(7, 5), "does not run on the example: RuntimeError: mat1"),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_cannot_be_trained_is_named(name: str) -> None:
    make, words = MODULES[name]
    with pytest.raises(GolowError, match=words):
        stepped(make(), SGD, (X, Y), functional.cross_entropy)


class WithScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output, target) * self.scale


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.CrossEntropyLoss(reduction="none"), r"a tensor of \[8\], not one number"),
        (lambda output, target: 1.0, "the loss is float, not one number"),
        (nn.MSELoss(), "the loss does not take the module's output and the targets"),
        (WithScale(), "the loss has a parameter, scale"),
        ("cross_entropy", "the loss is str"),
        (lambda output, target: torch.lgamma(output).mean(), "lgamma"),
        (lambda output, target: output.detach().mean(), "depends on no parameter"),
    ],
)
def test_a_loss_that_cannot_be_trained_with_is_named(loss: Any, words: str) -> None:
    with pytest.raises(GolowError, match=words):
        stepped(perceptron(), SGD, (X, Y), loss)


def in_groups(**second: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    def make(module: nn.Module) -> torch.optim.Optimizer:
        one, other = list(module.parameters())[:2]
        return torch.optim.AdamW([{"params": [one]}, {"params": [other], **second}], lr=0.01)

    return make


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda module: "adamw", "the optimizer is str"),
        (lambda module: torch.optim.Adagrad(module.parameters()), "the optimizer is Adagrad"),
        (lambda module: torch.optim.SGD(network().parameters()), r"of \[8, 3, 3, 3\] that is not"),
        (lambda module: torch.optim.Adam(module.parameters(), amsgrad=True), "has no amsgrad"),
        (lambda module: torch.optim.SGD(module.parameters(), maximize=True), "has no maximize"),
        (in_groups(eps=0.1), "differ in epsilon: 1e-08 and 0.1"),
        (lambda module: Optimizer("adam", momentum=0.9), "adam has no momentum"),
        (lambda module: Optimizer(learning_rate=-1.0), "learning_rate=-1 is negative"),
        (lambda module: Optimizer("lion"), "there is no optimizer 'lion'"),  # type: ignore[arg-type]
    ],
)
def test_an_optimizer_that_the_level_lacks_is_named(
    make: Callable[[nn.Module], Any], words: str
) -> None:
    module = perceptron()
    with pytest.raises(GolowError, match=words):
        stepped(module, make(module), (X, Y))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every=0 is not a whole number of at least 1"),
        ({"every": 2.0}, r"every=2.0 is not a whole number"),
        ({"seed": -1}, "seed=-1 is not a whole number"),
        ({"clip": 0.0}, "is not a valid norm"),
        ({"batch": [0]}, "a batch of 0"),
    ],
)
def test_options_without_sense_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(GolowError, match=words):
        stepped(perceptron(), SGD, (X, Y), **options)


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (X, "the example is Tensor, not a batch of inputs and targets"),
        ({"x": X}, "the example is dict"),
        ((), "the example is empty"),
        ((X, "cat"), "target 0 is str, not a tensor"),
        ((X, Y.to("meta")), "target 0 is on meta"),
    ],
)
def test_what_is_no_batch_is_named(example: Any, words: str) -> None:
    with pytest.raises(GolowError, match=words):
        stepped(perceptron(), SGD, example)


def test_a_module_without_copies_is_named() -> None:
    class Uncopied(nn.Linear):
        def __deepcopy__(self, memo: object) -> nn.Module:
            raise RuntimeError("no copies")

    with pytest.raises(GolowError, match="the module cannot be copied: RuntimeError: no copies"):
        golow.compile_step(Uncopied(6, 5), LOSS, optimizer=SGD, example=(X, Y), quiet=True)
