"""Recurrent layers as one operator for a layer and direction: what is captured, what unfolding
gives, and oneDNN's primitives against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn.recurrences import keep_faster_recurrences
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.operators.recurrence import Recurrence, RecurrenceBackward
from golow.lower.recognise.recurrences import name_recurrences, unfold_recurrences
from golow.lower.to_vocabulary import CANONICAL
from golow.records.workload import Mode
from support.examples import examples
from support.graphs.lowering import Case, count
from support.models.drawn_recurrences import Drawn, Recurrent, recurrent
from support.models.recurrent_networks import First, sides

needs_library = pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")
several = examples(4, same=True, suppress_health_check=[HealthCheck.too_slow])
MODES: tuple[Mode, ...] = ("infer", "train")


def foreign(graph: Graph) -> list[str]:
    """Operations outside the vocabulary."""
    return [node.op for node in graph.nodes if not node.op.startswith("golow.")]


# ---------------------------------------------------------------- the graph


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@several
@given(drawn=recurrent())
def test_a_layer_in_one_direction_is_an_operator(mode: Mode, drawn: Drawn) -> None:
    case = Case(drawn.module(), torch.randn(drawn.shape), mode=mode)
    graph = case.after(*CLEAN_UP, name_recurrences)
    assert count(graph, Recurrence) == sides(drawn)
    assert count(graph, RecurrenceBackward) == (sides(drawn) if mode == "train" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@several
@given(drawn=recurrent())
def test_unfolded_it_is_a_loop_that_means_the_same(mode: Mode, drawn: Drawn) -> None:
    case = Case(drawn.module(), torch.randn(drawn.shape), mode=mode)
    graph = case.after(*CLEAN_UP, name_recurrences, unfold_recurrences, *CANONICAL)
    assert count(graph, Recurrence) == count(graph, RecurrenceBackward) == 0
    assert not foreign(graph)


@pytest.mark.slow
def test_an_lstm_at_the_models_input_is_captured_as_any_other() -> None:
    """PyTorch would capture calls of oneDNN that no other level has."""
    case = Case(First(nn.LSTM(3, 4, 2)), torch.randn(2, 5, 3), mode="train")
    assert count(case.graph, Recurrence) == count(case.graph, RecurrenceBackward) == 2
    assert not foreign(case.after(*CLEAN_UP, unfold_recurrences, *CANONICAL))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_an_lstms_last_states_have_their_shape_in_all_versions(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some versions of PyTorch remove another axis than the one that they added."""
    decompositions = torch._decomp.decompositions
    right = decompositions.one_layer_lstm

    def as_before(*given: object, **named: object) -> object:
        y, states = right(*given, **named)
        return y, tuple(state.unsqueeze(0).squeeze(1) for state in states)

    monkeypatch.setattr(decompositions, "one_layer_lstm", as_before)
    module = Recurrent(
        "lstm", rows=3, states=True, ends=True, input_size=4, hidden_size=5, num_layers=2,
        bidirectional=True, proj_size=2,
    )  # fmt: skip
    case = Case(module, torch.randn(3, 3, 4), mode=mode)
    graph = case.after(*CLEAN_UP, name_recurrences, unfold_recurrences, *CANONICAL)
    assert not foreign(graph)


def test_dropout_between_layers_is_an_operator_of_its_own() -> None:
    case = Case(First(nn.GRU(3, 4, 3, dropout=0.5)), torch.randn(2, 5, 3), mode="train")
    assert [node.op for node in case.graph.nodes].count("aten.native_dropout.default") == 2


@pytest.mark.slow
def test_the_gradients_of_a_loop_use_what_it_computed() -> None:
    """The forward pass is not unrolled a second time: as many products as PyTorch's own capture."""
    module = First(nn.LSTM(3, 4, bias=False))
    case = Case(module, torch.randn(5, 2, 3), mode="train")
    graph = case.after(*CLEAN_UP, unfold_recurrences)
    products = [node for node in graph.nodes if node.op == "aten.mm.default"]
    # The input's, one a step, each with the gradients of its weight and of its state.
    assert len(products) <= 1 + 1 + 5 * 3


# ---------------------------------------------------------------- oneDNN


@pytest.mark.slow
@needs_library
@pytest.mark.parametrize("mode", MODES)
@several
@given(drawn=recurrent(), seed=st.integers(0, 99))
def test_the_primitive_is_right(mode: Mode, drawn: Drawn, seed: int) -> None:
    from support.direct.in_process import assert_right
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(seed)
    x = torch.randn(drawn.shape)
    network = lower(drawn.module(), x, mode, loss="mse_loss", recurrences=name_recurrences)
    assert count(network.graph, Recurrence) == sides(drawn)
    assert_right(network, compute(network))


@pytest.mark.slow
@needs_library
@pytest.mark.parametrize("mode", MODES)
def test_one_weight_in_two_layers_adds_its_gradients(mode: Mode) -> None:
    from support.direct.in_process import assert_right
    from support.direct.onednn_in_process import compute, lower

    layer = nn.GRU(4, 4)

    class Twice(First):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(self.layer(x)[0])

    network = lower(
        Twice(layer), torch.randn(3, 2, 4), mode, loss="mse_loss", recurrences=name_recurrences
    )
    assert_right(network, compute(network))


@pytest.mark.slow
@needs_library
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_gates_in_another_order_are_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted error: PyTorch's order of gates for the GRU, a swap of two for the LSTM."""
    from golow.levels.direct.onednn.steps import recurrent as library
    from support.direct.in_process import assert_right
    from support.direct.onednn_in_process import compute, lower

    wrong = {"gru": (0, 1, 2), "lstm": (1, 0, 2, 3)}[kind]
    monkeypatch.setitem(library.ORDER, kind, wrong)
    torch.manual_seed(0)
    module = Recurrent(
        kind, rows=2, states=True, ends=False, input_size=4, hidden_size=4, num_layers=1,
        bidirectional=False,
    )  # fmt: skip
    for mode in MODES:
        network = lower(
            module, torch.randn(3, 2, 4), mode, loss="mse_loss", recurrences=name_recurrences
        )
        with pytest.raises(AssertionError, match=r"recurrence of layer rnn .* is off by"):
            assert_right(network, compute(network))


def test_training_keeps_every_layer_whole() -> None:
    case = Case(First(nn.LSTM(3, 4, 2)), torch.randn(2, 5, 3), mode="train")
    assert count(keep_faster_recurrences(case.graph), Recurrence) == 2
