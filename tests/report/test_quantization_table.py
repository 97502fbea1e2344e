"""The text of a quantisation."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from golow.programs.quantization.quantization_record import Quantization
from golow.records.quantization import QuantizedLayer, QuantizedNetwork
from golow.report.quantization.table import RANDOM, network_text, render
from support.records.quantizations import EVERYTHING


def printed(record: Quantization, width: int = 80) -> list[str]:
    text = io.StringIO()
    render(record, Console(file=text, width=width))
    return text.getvalue().splitlines()


@pytest.mark.parametrize(
    ("initialisation", "warned"),
    [("default, seed 0", True), ("the model's constructor, seed 0", True),
     ("weights of trained.safetensors", False), ("pretrained", False)],
)  # fmt: skip
def test_random_weights_are_named_beside_the_cost(initialisation: str, warned: bool) -> None:
    workload = msgspec.structs.replace(EVERYTHING.workload, initialisation=initialisation, seed=0)
    shown = " ".join(printed(msgspec.structs.replace(EVERYTHING, workload=workload)))
    assert (RANDOM in shown) is warned


def test_text_fits_and_what_one_pastes_is_whole() -> None:
    file = f"{'long/' * 20}weights.safetensors"
    lines = printed(msgspec.structs.replace(EVERYTHING, file=file))
    [command] = [line for line in lines if line.startswith("  golow compare ")]
    assert file in command
    assert all(len(line) <= 80 for line in lines if file not in line and "--keep" not in line)


def test_each_rule_of_a_mixture_is_described() -> None:
    layers = tuple(
        QuantizedLayer(path=path, rule=rule, group=group)
        for path, rule, group in (
            ("a", "int4-weights", 32), ("b", "int4-weights", 32), ("c", "int8-weights", 0),
        )
    )  # fmt: skip
    network = QuantizedNetwork(model="m", rule="int4-weights", calibration=None, layers=layers)
    assert network_text(network) == (
        "2 layers with 4-bit weights, a scale for each 32 inputs of an output, 1 layer with 8-bit "
        "weights, a scale for each output; activations are not quantised"
    )
