"""What is captured computes what the module computes: bitwise, in inference and in training."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.aten.translation import Captured
from golow.lower.capture.capture import capture_inference, capture_training
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import decode_graph, encode_graph, print_python
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret
from golow.records.errors import GolowError
from support.examples import examples
from support.graphs.given_values import given_values
from support.models.drawn_networks import Small, networks


def train_step(module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """What eager makes of one step: loss, gradients, new buffers, under the graph's names."""
    module.train()
    output = module(x)
    loss = functional.cross_entropy(output, y)
    loss.backward()
    found = {"loss/loss": loss.detach(), "output/0": output.detach()}
    found |= {f"gradient/{n}": p.grad for n, p in module.named_parameters() if p.grad is not None}
    return found | {f"buffer/{n}": b for n, b in module.named_buffers()}


@examples(15)
@given(networks())
def test_inference_graph_equals_eager(drawn: tuple[nn.Module, tuple[int, ...]]) -> None:
    module, shape = drawn
    x = torch.randn(2, *shape)
    captured = capture_inference("net", module.eval(), (x,))
    graph = apply(captured.graph, CLEAN_UP)
    with torch.no_grad():
        wanted = module(x)
        found = interpret(graph, given_values(captured._replace(graph=graph), module, x))
    assert torch.equal(found["output/0"], wanted)


@pytest.mark.slow
@examples(15)
@given(networks())
def test_training_graph_equals_eager(drawn: tuple[nn.Module, tuple[int, ...]]) -> None:
    module, shape = drawn
    x, y = torch.randn(3, *shape), torch.randint(0, 5, (3,))
    captured = capture_training("net", module, (x,), (y,), functional.cross_entropy)
    captured = captured._replace(graph=apply(captured.graph, CLEAN_UP))
    values = given_values(captured, module, x, y)
    wanted = train_step(copy.deepcopy(module), x, y)
    found = interpret(captured.graph, values)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("rows", [1, 4])
def test_a_loss_whose_definition_in_pytorch_is_wrong_is_captured_right(rows: int) -> None:
    """The targets of each row end at the first -1; PyTorch's definition takes what follows for
    class 0. After the capture its definition is what it was."""
    torch.manual_seed(0)
    module, x = nn.Linear(6, 5).double(), torch.randn(rows, 6).double()
    y = torch.tensor([[1, 2, -1, 3, 4], [-1, 0, 1, 2, 3], [4, -1, 0, 0, 0], [0, 1, 2, 3, 4]])[:rows]
    operator = torch.ops.aten.multilabel_margin_loss_forward.default
    before = dict(operator.py_kernels)
    captured = capture_training("net", module, (x,), (y,), functional.multilabel_margin_loss)
    assert operator.py_kernels == before
    found = interpret(captured.graph, given_values(captured, module, x, y))
    wanted = functional.multilabel_margin_loss(module(x), y)
    wanted.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found["loss/loss"], wanted)
    torch.testing.assert_close(found["gradient/weight"], module.weight.grad)


def test_capture_leaves_the_module_as_it_was() -> None:
    module, x, y = Small(), torch.randn(2, 3, 16, 16), torch.randint(0, 10, (2,))
    before = {k: v.clone() for k, v in module.state_dict().items()}
    capture_training("small", module, (x,), (y,), functional.cross_entropy)
    capture_inference("small", module, (x,))
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


def test_nodes_know_their_layer_and_phase() -> None:
    module, x, y = Small(), torch.randn(2, 3, 16, 16), torch.randint(0, 10, (2,))
    graph = capture_training("small", module, (x,), (y,), functional.cross_entropy).graph
    places = {(n.op.split(".")[1], n.phase): n.module for n in graph.nodes if "conv" in n.op}
    assert places["convolution", "forward"] == "block.1.conv"  # the last one forward
    assert places["convolution_backward", "backward"] == "stem"  # and the last one back
    graph = capture_inference("small", module, (x,)).graph
    assert [n.module for n in graph.nodes if n.op == "aten.conv2d.default"] == [
        "stem",
        "block.0.conv",
        "block.1.conv",
    ]


def test_the_printed_graph_runs_and_equals_eager() -> None:
    module, x = Small().eval(), torch.randn(2, 3, 16, 16)
    captured = capture_inference("small", module, (x,))
    text = print_python(captured.graph).replace(
        "from torch.ops import aten", "aten = torch.ops.aten"
    )
    scope: dict[str, object] = {}
    exec(text, scope)  # noqa: S102 (our own print)
    with torch.no_grad():
        found = scope["small_infer"](given_values(captured, module, x))  # type: ignore[operator]
        assert torch.equal(found["output/0"], module(x))


def test_the_graph_survives_json() -> None:
    module, x, y = Small(), torch.randn(2, 3, 16, 16), torch.randint(0, 10, (2,))
    graph = capture_training("small", module, (x,), (y,), functional.cross_entropy).graph
    assert decode_graph(encode_graph(graph)) == graph


class Clamped(nn.Module):
    """Has an infinity among its arguments, which JSON cannot write."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, float("-inf"), 1.0) + torch.tensor([1.0, 2.0])


def test_infinities_and_constants_survive() -> None:
    module, x = Clamped(), torch.randn(3, 2)
    captured = capture_inference("clamped", module, (x,))
    graph = decode_graph(encode_graph(apply(captured.graph, CLEAN_UP)))
    found = interpret(graph, given_values(captured._replace(graph=graph), module, x))
    assert torch.equal(found["output/0"], module(x))
    assert captured.constants


class Holding(nn.Module):
    """Adds tensors that are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.positions = nn.Linear(4, 3), torch.randn(5, 3)
        self.further = [torch.randn(3)]

    def forward(self, x: Tensor) -> Tensor:
        positions = self.positions[: len(x)].detach()
        return self.layer(x) * positions + self.further[0] - self.positions.mean()


def test_tensors_that_a_model_or_its_loss_holds_are_constants_of_a_training_step() -> None:
    module, weights = Holding(), torch.rand(3)
    x, y = torch.randn(5, 4), torch.arange(5) % 3

    def weighted(output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output, target, weight=weights)

    captured = capture_training("model", module, (x,), (y,), weighted)
    held = [item.target for item in captured.graph.inputs if item.kind == "constant"]
    assert len(held) == len(set(held)) == 3, "each once"
    found = interpret(captured.graph, given_values(captured, module, x, y))
    wanted = weighted(module(x), y)
    wanted.backward()
    assert torch.equal(found["loss/loss"], wanted.detach())
    assert torch.equal(found["gradient/layer.weight"], module.layer.weight.grad)


class PerSample(nn.Module):
    """A layer whose weight is another one for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Linear(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.weights(x).unflatten(1, (3, 4))
        return torch.vmap(functional.linear)(x, weights).tanh()


@pytest.mark.slow
def test_a_mapped_function_is_captured() -> None:
    module, x = PerSample(), torch.randn(5, 4)
    captured = capture_inference("mapped", module, (x,))
    found = interpret(captured.graph, given_values(captured, module, x))
    assert torch.equal(found["output/0"], module(x))


class Solving(nn.Module):
    """Solves two systems, of which PyTorch checks the error codes in order."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        factor = torch.linalg.cholesky(y.t() @ y + torch.eye(3))
        return torch.linalg.solve(factor + torch.eye(3), y.t()).t()


def test_checks_of_error_codes_are_not_part_of_a_training_step() -> None:
    module, x, y = Solving(), torch.randn(5, 4), torch.arange(5) % 3
    captured = capture_training("model", module, (x,), (y,), functional.cross_entropy)
    found = interpret(captured.graph, given_values(captured, module, x, y))
    wanted = train_step(module, x, y)
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert torch.equal(found[name], wanted[name]), name


class Branching(nn.Module):
    """Takes a branch by the content of its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_branch_on_data_is_explained() -> None:
    with pytest.raises(GolowError, match="could not capture branching") as raised:
        capture_inference("branching", Branching(), (torch.randn(3),))
    assert "control flow" in raised.value.hint


# ---------------------------------------------------------------- what cannot be captured


class Packed(nn.Module):
    """A recurrent layer on sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 2]), batch_first=True)
        output, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return output.flatten(1)


class Selected(nn.Module):
    """Its result has as many numbers as are positive."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


class Renormed(nn.Module):
    """Shortens rows of its weight in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 4, max_norm=0.5), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.table(torch.arange(len(x)))


def captured_step(module: nn.Module, *shape: int) -> Captured:
    """Of a training step with a class for each sample."""
    targets = torch.zeros(shape[0], dtype=torch.int64)
    loss = functional.cross_entropy
    return capture_training("model", module, (torch.randn(shape),), (targets,), loss)


def test_packed_sequences_are_named() -> None:
    with pytest.raises(GolowError, match="packs sequences"):
        capture_inference("model", Packed(), (torch.randn(2, 5, 4),))
    with pytest.raises(GolowError, match="packs sequences"):
        captured_step(Packed(), 2, 5, 4)


def test_a_size_that_depends_on_content_is_named() -> None:
    with pytest.raises(GolowError, match="depends on the content"):
        capture_inference("model", Selected(), (torch.randn(3, 4),))


def test_a_parameter_that_the_forward_pass_changes_is_named() -> None:
    with pytest.raises(GolowError, match=r"changes the parameter table\.weight"):
        captured_step(Renormed(), 3, 4)


def test_a_buffer_of_which_only_the_new_content_counts_is_an_input() -> None:
    module = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)))
    graph = apply(captured_step(module, 3, 4).graph, CLEAN_UP)
    buffers = {item.target for item in graph.inputs if item.kind == "buffer"}
    assert {item.target for item in graph.outputs if item.kind == "buffer"} == buffers
    assert len(buffers) == 2
