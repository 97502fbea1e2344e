"""Recurrent networks by cuDNN against float64, forward and backward, within the real plan."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from golow.levels.direct.cudnn.level import probe
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Precision

if not probe().available:
    pytest.skip(probe().missing, allow_module_level=True)

from golow.levels.direct.cudnn.bindings.rnn_api import ALGORITHMS, CudnnError, Network
from golow.levels.direct.cudnn.engines import recurrent_engines
from golow.levels.direct.cudnn.engines.engines import Engines
from golow.levels.direct.cudnn.engines.golow_recurrence import Shares, takes
from golow.levels.direct.cudnn.problems.recurrent_network import RecurrentNetwork
from golow.lower.operators.recurrence import Recurrence
from golow.lower.operators.recurrent_layers import RecurrentLayers
from golow.lower.operators.recurrent_stack import RecurrentStack
from support.direct.cudnn_in_process import (
    OF_CUDNNS_LSTM,
    ROUNDING,
    OnGpu,
    Running,
    assert_near,
    compute,
    lowered,
)
from support.direct.in_process import assert_right
from support.graphs.lowering import count
from support.models.drawn_recurrences import Recurrent
from support.models.recurrent_networks import Recurrences

pytestmark = pytest.mark.gpu

MODES: tuple[Mode, ...] = ("infer", "train")
PLAIN: dict[str, Any] = {
    "kind": "lstm", "rows": 3, "states": False, "ends": False, "input_size": 12,
    "hidden_size": 20, "num_layers": 1, "bidirectional": False, "batch_first": True,
}  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "time first": {"batch_first": False},
    "two layers": {"num_layers": 2, "states": True},
    "two layers and their states": {"num_layers": 2, "states": True, "ends": True},
    "three projected layers": {"num_layers": 3, "proj_size": 7, "states": True},
    "both directions": {"bidirectional": True, "states": True, "ends": True},
    "two in both directions": {"num_layers": 2, "bidirectional": True, "batch_first": False},
    "two in both directions, batch first": {"num_layers": 2, "bidirectional": True},
    "projected": {"proj_size": 7, "states": True, "ends": True},
    "projected, two in both directions": {
        "proj_size": 8,
        "num_layers": 2,
        "bidirectional": True,
        "ends": True,
    },
    "without biases": {"bias": False, "num_layers": 2},
    "odd": {"input_size": 7, "hidden_size": 13, "rows": 1, "states": True, "ends": True},
    "gru": {"kind": "gru", "num_layers": 2, "bidirectional": True, "states": True, "ends": True},
    "gru without biases": {"kind": "gru", "bias": False},
    "tanh": {"kind": "rnn", "nonlinearity": "tanh", "num_layers": 2, "states": True},
    "relu": {"kind": "rnn", "nonlinearity": "relu", "bidirectional": True, "ends": True},
}


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> OnGpu:
    return OnGpu(tmp_path_factory.mktemp("cudnn"))


def network_of(form: dict[str, Any], mode: Mode, precision: Precision = "ieee") -> Any:
    torch.manual_seed(0)
    settings = PLAIN | form
    steps, rows, inputs = 6, settings["rows"], settings["input_size"]
    shape = (rows, steps, inputs) if settings["batch_first"] else (steps, rows, inputs)
    module, x = Recurrent(**settings), torch.randn(shape)
    network = lowered(module, x, mode, loss="mse_loss", precision=precision)
    whole = (Recurrence, RecurrentLayers, RecurrentStack)
    assert sum(count(network.graph, kind) for kind in whole) > 0
    return network


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_it_is_right(on: OnGpu, form: str, mode: Mode) -> None:
    network = network_of(FORMS[form], mode)
    limit = OF_CUDNNS_LSTM if (PLAIN | FORMS[form])["kind"] == "lstm" else 32
    assert_right(network, compute(network, on), limit)


@pytest.mark.parametrize("mode", MODES)
def test_layers_with_sums_around_them_are_right(on: OnGpu, mode: Mode) -> None:
    torch.manual_seed(0)
    network = lowered(Recurrences(4), torch.randn(3, 6, 16), mode, loss="mse_loss")
    assert_right(network, compute(network, on), OF_CUDNNS_LSTM)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("form", ["two in both directions", "gru", "projected"])
def test_it_is_right_in_less_precision(
    on: OnGpu, form: str, precision: Precision, mode: Mode
) -> None:
    """As near to float64 as a few roundings of every value let it be."""
    sizes = {"input_size": 16, "hidden_size": 32} | (
        {"proj_size": 16} if form == "projected" else {}
    )
    assert_near(network_of(FORMS[form] | sizes, mode, precision), on, precision)


@pytest.fixture
def asked(on: OnGpu, monkeypatch: pytest.MonkeyPatch) -> list[Shares | None]:
    """Lets golow's own kernels compute every network, and lists what they took."""
    found: list[Shares | None] = []

    def own(problem: RecurrentNetwork) -> Shares | None:
        found.append(takes(problem, on.gpu.properties()["numSms"]))
        return found[-1]

    monkeypatch.setattr(on.engines, "own_recurrence", own)
    return found


OWN = [name for name in FORMS if "projected" not in name]


@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("form", OWN)
def test_golows_own_kernels_train(
    on: OnGpu, form: str, precision: Precision, asked: list[Shares | None]
) -> None:
    assert_near(network_of(FORMS[form], "train", precision), on, precision)
    assert asked and None not in asked


@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("form", OWN)
def test_golows_own_kernel_is_right(
    on: OnGpu, form: str, precision: Precision, asked: list[Shares | None]
) -> None:
    """Step by step, and as a CUDA graph, whose launches follow one another at once."""
    network = network_of(FORMS[form], "infer", precision)
    assert_near(network, on, precision)
    assert asked and None not in asked
    running = Running(network, on, precision)
    first, *others = (running.step(0) for _ in range(20))
    for later in others:
        for name, array in first.items():
            np.testing.assert_array_equal(later[name], array)


@pytest.mark.parametrize("mode", MODES)
def test_it_gives_the_same_bits_again(on: OnGpu, mode: Mode) -> None:
    network = network_of(FORMS["two layers"] | {"hidden_size": 128, "input_size": 128}, mode)
    first, second = compute(network, on), compute(network, on)
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array, err_msg=name)


def test_a_graph_gives_what_the_steps_give(on: OnGpu) -> None:
    """The first iteration runs step by step, later ones as a CUDA graph."""
    running = Running(network_of(FORMS["two in both directions"], "infer"), on)
    first, second, third = (running.step(0) for _ in range(3))
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)
        np.testing.assert_array_equal(third[name], array)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [64, 650])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_right(
    on: OnGpu,
    algorithm: str,
    width: int,
    mode: Mode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that the library has for these sizes."""
    monkeypatch.setattr(recurrent_engines, "ALGORITHMS", {algorithm: ALGORITHMS[algorithm]})
    network = network_of({"num_layers": 2, "hidden_size": width, "input_size": width}, mode)
    alone = copy.copy(on)  # with its compiled kernels
    alone.engines = Engines(on.gpu, tmp_path, autotune=False)
    try:
        found = compute(network, alone)
    except Unsupported as error:
        assert algorithm != "standard"
        pytest.skip(str(error))
    assert_right(network, found)


@pytest.mark.parametrize("mode", MODES)
def test_stored_it_is_right(tmp_path_factory: pytest.TempPathFactory, mode: Mode) -> None:
    """A later start takes the choice from the cache."""
    folder = tmp_path_factory.mktemp("stored")
    network = network_of({"num_layers": 2, "hidden_size": 32, "input_size": 32}, mode)
    assert_right(network, compute(network, OnGpu(folder)))
    again = OnGpu(folder)
    assert_right(network, compute(network, again))
    assert again.engines.built == 0


def test_what_the_library_does_not_have_is_an_error_with_its_words(on: OnGpu) -> None:
    wrong = RecurrentNetwork(
        kind="gru", layers=1, sides=1, steps=3, rows=2, inputs=4, hidden=4, results=2,
        biased=True, batch_major=False, dtype="float32", arithmetic="ieee", trains=False,
    )  # fmt: skip
    with pytest.raises((CudnnError, ValueError), match=r"cudnn|cuDNN"):
        Network(on.engines.frontend.handle, wrong, "standard")
