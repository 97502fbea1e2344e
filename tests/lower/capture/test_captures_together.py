"""What one of PyTorch's captures does not take, the other may; and what neither takes as it is, is
traced as arithmetic. The graphs compute what the modules do."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.lower.capture.capture import capture_inference, capture_training
from golow.lower.capture.exported import exported_graph
from golow.records.errors import GolowError
from golow.records.workload import Mode
from support.graphs.lowering import Case, assert_close
from support.models import stateful

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


class Layers(nn.Module):
    """Two layers and a function of theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 6)


class Forces(Layers):
    """Energy and its gradient, as interatomic potentials return them."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            energy = self.last(torch.tanh(self.first(x)))
            (force,) = torch.autograd.grad(energy.sum(), x, create_graph=self.training)
        return energy, force


class Derivatives(Layers):
    """``torch.func``'s derivative of each row."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def energy(row: Tensor) -> Tensor:
            return self.last(torch.tanh(self.first(row))).square().sum()

        return self.last(self.first(x)), torch.func.vmap(torch.func.grad(energy))(x)


class Chooses(Layers):
    """A branch by what a tensor contains."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.first(x))
        found: Tensor = torch.cond(y.sum() > 0, torch.sin, lambda v: v.cos() * 2, (y,))
        return found


class ChoosesByShape(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.first(x))
        found: Tensor = torch.cond(x.shape[0] > 4, torch.sin, torch.cos, (y,))
        return found


class Literals(Layers):
    """Complex numbers in the code."""

    def forward(self, x: Tensor) -> Tensor:
        z = torch.view_as_complex(self.last(self.first(x)).reshape(-1, 3, 2))
        return torch.view_as_real((1j * z + (0.5 - 0.25j)) / 2j).flatten(1)


class CumulativeNorm(Layers):
    """``momentum=None``: the average over all batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8, momentum=None)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.norm(self.first(x)))
        return found


class Reshapes(Layers):
    """In place on a view, as bug reports have it."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.first(x)).unsqueeze_(1)
        y[:, :, 3:] = 0
        return y.squeeze_(1)[:, 1:]


MODELS = (Forces, Derivatives, Chooses, ChoosesByShape, Literals, CumulativeNorm, Reshapes)


def prepared(kind: type[nn.Module], mode: Mode) -> Case:
    torch.manual_seed(0)
    loss = "mse_of_outputs" if mode == "train" else None
    x = torch.randn(8, 6)
    shapes = [leaf.shape for leaf in leaves(kind()(x.clone()))]
    targets = tuple(torch.zeros(shape) for shape in shapes) if mode == "train" else None
    return Case(kind(), x, mode=mode, loss=loss, targets=targets)  # type: ignore[arg-type]


def leaves(output: object) -> list[Tensor]:
    return list(output) if isinstance(output, tuple) else [output]  # type: ignore[list-item]


@both_modes
@pytest.mark.parametrize("kind", MODELS)
def test_the_graph_computes_what_the_module_does(kind: type[nn.Module], mode: Mode) -> None:
    """Outputs, and in training gradients and the buffers' new content, in float64."""
    case = prepared(kind, mode)
    found = case.run(case.graph)
    module = kind().train(mode == "train").double()
    state = {
        name: value for (k, name), value in case.values.items() if k in ("parameter", "buffer")
    }
    module.load_state_dict(state)
    outputs = leaves(module(case.values[("input", "0")].double()))
    wanted = {f"output/{k}": leaf.detach() for k, leaf in enumerate(outputs)}
    if mode == "train":
        sum(leaf.square().mean() for leaf in outputs).backward()  # type: ignore[union-attr]
        gradients = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
        wanted |= {f"gradient/{name}": grad for name, grad in gradients.items()}
        wanted |= {f"buffer/{name}": buffer for name, buffer in module.named_buffers()}
    assert wanted.keys() <= found.keys()
    assert_close({name: found[name] for name in wanted}, wanted, kind.__name__)


@pytest.mark.parametrize("kind", [Forces, Derivatives])
def test_export_alone_does_not_take_them(kind: type[nn.Module]) -> None:
    """Otherwise the test above would say nothing of the second capture."""
    with pytest.raises(GolowError, match="torch could not capture"):
        exported_graph("it", kind().eval(), (torch.randn(8, 6),), [], 0.0)


def test_what_neither_takes_is_refused_in_the_words_of_the_first(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Branches(Layers):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.first(x)
            return found if found.sum() > 0 else -found

    said: list[str] = []
    with pytest.raises(GolowError, match="control flow"):
        capture_inference("it", Branches(), (torch.randn(8, 6),), said)
    assert capfd.readouterr() == ("", "")  # torch.export prints the graph that it has
    assert any("torch.ops.aten" in text for text in said)


def ctc(output: Tensor, *_: Tensor) -> Tensor:
    targets = torch.arange(1, 3).repeat(len(output), 1)
    lengths = torch.full((len(output),), 4), torch.full((len(output),), 2)
    scores = output.reshape(len(output), 4, -1).log_softmax(-1).transpose(0, 1)
    return nn.functional.ctc_loss(scores, targets, *lengths)


def test_a_loss_whose_shapes_depend_on_content_is_named() -> None:
    module = nn.Linear(6, 12)
    with pytest.raises(GolowError, match="_ctc_loss") as caught:
        capture_training("it", module, (torch.randn(8, 6),), (), ctc)
    assert "control flow" not in str(caught.value)


def test_a_buffer_that_is_assigned_is_an_output_of_the_step() -> None:
    module, x = stateful.AssignsInside(), torch.randn(8, 5)
    targets = (torch.randn(8, 3),)
    found = capture_training("it", module, (x,), targets, nn.functional.mse_loss)
    assert ("buffer", "inner.average") in [(o.kind, o.target) for o in found.graph.outputs]
    assert module.inner.average.abs().sum() == 0  # the module's own is untouched


@pytest.mark.slow
def test_a_compiled_step_carries_it() -> None:
    torch.manual_seed(0)
    module = stateful.AssignsBuffer().train()
    eager, x, y = copy.deepcopy(module), torch.randn(8, 5), torch.randn(8, 5)
    optimizer = golow.Optimizer("sgd", learning_rate=0.1, momentum=0.0)
    step = golow.compile_step(
        module, nn.functional.mse_loss, optimizer=optimizer, example=(x, y), quiet=True
    )
    updates = torch.optim.SGD(eager.parameters(), 0.1)
    for _ in range(3):
        loss = nn.functional.mse_loss(eager(x), y)
        updates.zero_grad()
        loss.backward()
        updates.step()
        assert float(step(x, y)) == pytest.approx(float(loss.detach()), rel=1e-5)
