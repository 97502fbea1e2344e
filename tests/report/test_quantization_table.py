"""The text of a quantisation."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from golow.programs.quantization.quantization_record import Quantization
from golow.report.quantization.table import RANDOM, render
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
