"""Every option that describes a workload reaches the public function of its command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from golow import api
from golow.cli import app
from golow.records.workload import Optimizer
from golow.workload.request import GraphOptions, WorkloadOptions

GRAPH: dict[str, tuple[str, Any]] = {
    "mode": ("--mode train", "train"),
    "batch": ("--batch 3", 3),
    "resolution": ("--resolution 32", 32),
    "sequence": ("--sequence 7", 7),
    "input_shape": ("--input 3x8x9", (3, 8, 9)),
    "channels": ("--channels 2", 2),
    "classes": ("--classes 5", 5),
    "loss": ("--loss mse_loss", "mse_loss"),
    "phase": ("--phase decode", "decode"),
}
WEIGHTS: dict[str, tuple[str, Any]] = {
    "pretrained": ("--random-weights", False),
    "download": ("--download", True),
}
GRAPH |= WEIGHTS
WORKLOAD = GRAPH | {
    "weights": ("--weights w.safetensors", Path("w.safetensors")),
    "initialisation": ("--init kaiming", "kaiming"),
    "seed": ("--seed 11", 11),
    "device": ("--device cuda", "cuda"),
    "threads": ("--threads 2", 2),
}
OPTIMIZER = {
    "optimizer": (
        "--optimizer rmsprop --learning-rate 0.5 --momentum 0.1 --nesterov --weight-decay 0.2 "
        "--betas 0.3,0.4 --smoothing 0.6 --epsilon 0.7 --clip 0.8",
        Optimizer(
            name="rmsprop",
            learning_rate=0.5,
            momentum=0.1,
            nesterov=True,
            weight_decay=0.2,
            betas=(0.3, 0.4),
            smoothing=0.6,
            epsilon=0.7,
            clip=0.8,
        ),
    )
}


class Called(Exception):
    """The public function was called."""


def called(function: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The keywords with which the command calls the public function."""
    found: dict[str, Any] = {}

    def record(*_: Any, **keywords: Any) -> Any:
        found.update(keywords)
        raise Called

    monkeypatch.setattr(api, function, record)
    outcome = CliRunner().invoke(app, arguments)
    assert isinstance(outcome.exception, Called), outcome.output
    return found


COMMANDS = [
    ("compare", ["compare", "mlp"], WORKLOAD | OPTIMIZER),
    ("audit", ["audit", "mlp"], WORKLOAD | OPTIMIZER),
    ("profile", ["profile", "mlp"], WORKLOAD),
    ("support", ["levels", "--support", "mlp"], GRAPH),
    ("roof", ["lower", "mlp", "--roof", "--level", "vendor"], GRAPH),
    ("train", ["train", "mlp", "--dataset", "digits"], WEIGHTS | OPTIMIZER),
]


@pytest.mark.parametrize(("function", "command", "options"), COMMANDS)
def test_every_option_reaches_the_public_function(
    function: str,
    command: list[str],
    options: dict[str, tuple[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = called(function, command, monkeypatch)
    given = [word for text, _ in options.values() for word in text.split()]
    found = called(function, [*command, *given], monkeypatch)
    for name, (_, value) in options.items():
        assert found[name] == value != plain[name], name


def test_no_option_of_the_public_functions_is_forgotten_here() -> None:
    assert {*GRAPH, "targets"} == {*GraphOptions.__annotations__}
    assert {*WORKLOAD, "targets"} == {*WorkloadOptions.__annotations__, "threads"}


@pytest.mark.parametrize(
    ("name", "absent"),
    [("quantize", "mode loss device threads"), ("load", "mode loss"), ("build", "mode loss")],
)
def test_no_command_has_an_option_that_it_never_uses(name: str, absent: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    assert not {parameter.name for parameter in command.params} & {*absent.split()}


def test_an_exported_program_is_not_trained_whatever_the_data(tmp_path: Path) -> None:
    """Said before the data are looked for."""
    (tmp_path / "mine.pt2").write_bytes(b"")
    ended = CliRunner().invoke(app, ["train", str(tmp_path / "mine.pt2"), "--dataset", "mnist"])
    assert "is an exported program, which cannot be trained" in str(ended.exception)
