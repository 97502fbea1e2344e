"""The captures that tests share: given again for the same network, and for no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.aten.translation import Captured
from golow.lower.ir.graph import encode_graph
from golow.workload import graph_capture
from support.graphs.shared_captures import captures_shared, digest


class Scaled(nn.Module):
    """A layer, an attribute that is no tensor, a constant, and a buffer outside of the state."""

    def __init__(self, scale: float = 2.0, width: int = 3) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, width), scale
        self.register_buffer("offset", torch.ones(width) * scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale + self.offset + torch.tensor([1.0, 2.0, 3.0])[:1]


class Tied(nn.Module):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        if tied:
            self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


X = (torch.randn(2, 4),)


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The networks that were captured anew, in a run of tests that begins here."""
    new = list[str]()

    def counted(capture: Callable[..., Captured]) -> Callable[..., Captured]:
        def run(name: str, *given: object) -> Captured:
            new.append(name)
            return capture(name, *given)

        return run

    from golow.lower.capture import capture

    monkeypatch.setattr(graph_capture, "capture_inference", counted(capture.capture_inference))
    monkeypatch.setattr(graph_capture, "capture_training", counted(capture.capture_training))
    with captures_shared(tmp_path / "captures"):
        yield new


def infer(module: nn.Module, name: str = "net", inputs: tuple[Tensor, ...] = X) -> Captured:
    return graph_capture.capture_inference(name, module, inputs, None)


def same(a: Captured, b: Captured) -> bool:
    constants = a.constants.keys() == b.constants.keys() and all(
        torch.equal(a.constants[k], b.constants[k]) for k in a.constants
    )
    return constants and encode_graph(a.graph) == encode_graph(b.graph)


def test_the_same_network_is_captured_once_whatever_its_weights(taken: list[str]) -> None:
    first, second = infer(Scaled()), infer(Scaled(), inputs=(torch.randn(2, 4),))
    assert taken == ["net"]
    assert same(first, second)


def test_another_process_of_the_run_finds_it_on_the_disk(taken: list[str], tmp_path: Path) -> None:
    first = infer(Scaled())
    with captures_shared(tmp_path / "captures"):
        assert same(first, infer(Scaled()))
    assert taken == ["net"]


OTHERS = {
    "an attribute": lambda: infer(Scaled(scale=3.0)),
    "a width": lambda: infer(Scaled(width=5)),
    "a name": lambda: infer(Scaled(), name="other"),
    "a batch": lambda: infer(Scaled(), inputs=(torch.randn(3, 4),)),
    "a dtype": lambda: infer(Scaled().double(), inputs=(X[0].double(),)),
    "strides": lambda: infer(Scaled(), inputs=(torch.randn(4, 2).T,)),
    "the mode": lambda: graph_capture.capture_training(
        "net", Scaled(), X, (torch.tensor([0, 1]),), functional.cross_entropy, None
    ),
    "frozen weights": lambda: infer(Scaled().requires_grad_(False)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_differs_is_captured_anew(taken: list[str], other: Callable[[], Captured]) -> None:
    infer(Scaled())
    other()
    assert len(taken) == 2


def test_a_constant_has_its_numbers(taken: list[str]) -> None:
    """A buffer that is in no state dict comes from the capture."""
    twos, threes = infer(Scaled(scale=2.0)), infer(Scaled(scale=3.0))
    assert {float(c.max()) for c in twos.constants.values()} != {
        float(c.max()) for c in threes.constants.values()
    }


def test_tied_weights_are_told_from_equal_ones() -> None:
    assert digest("net", Tied(True), X) == digest("net", Tied(True), X)
    assert digest("net", Tied(True), X) != digest("net", Tied(False), X)


def test_a_loss_is_part_of_it() -> None:
    mine: Callable[..., Tensor] = lambda output, target: (output - target).square().mean()  # noqa: E731
    assert digest("net", mine) != digest("net", functional.mse_loss)


def test_what_torch_said_is_said_again(taken: list[str]) -> None:
    class Warns(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            import warnings

            warnings.warn("a word while it is traced", stacklevel=1)
            return x + 1

    first, second = list[str](), list[str]()
    module = Warns()
    graph_capture.capture_inference("net", module, X, first)
    graph_capture.capture_inference("net", module, X, second)
    assert taken == ["net"]
    assert first == second


def test_what_cannot_be_captured_fails_each_time(taken: list[str]) -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if x.sum() > 0 else x

    for _ in range(2):
        with pytest.raises(Exception, match="could not capture"):
            infer(Branches())
    assert taken == ["net", "net"]
