"""Names of models that are none, and models that are random where they should repeat themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from golow.record import GolowError
from golow.workload.prepare import prepare
from golow.workload.request import Request
from model_files import FILE, assert_computes, imports_forgotten, refusal, written_models


@pytest.fixture(autouse=True)
def own_imports() -> Iterator[None]:
    with imports_forgotten():
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written_models(tmp_path)


# ---------------------------------------------------------------- models that are none


@pytest.mark.parametrize(
    ("model", "message", "hint"),
    [
        ("resnet5O", "there is no model 'resnet5O' in the zoo", "did you mean resnet50"),
        ("restnet", "there is no model 'restnet'", "resnet18"),
        ("xyzzy", "there is no model 'xyzzy'", "`golow models` lists them"),
        ("nowhere.py:Net", "there is no file nowhere.py", "check the path"),
        ("nowhere.pt2", "there is no file nowhere.pt2", ""),
        ("mynet.py", "names a file but no model in it", "write mynet.py:ClassName"),
        ("nowhere.models:build", "the module nowhere.models cannot be imported", "install it"),
    ],
)
def test_there_is_no_such_model(model: str, message: str, hint: str) -> None:
    refused = refusal(model, input_shape=(16,))
    assert message in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("Nett", "has no 'Nett'", "modules defined there: Net, Needy"),
        ("", "has no ''", "modules defined there: Net, Needy"),
        ("Needy", "missing 1 required positional argument: 'classes'", "without arguments"),
        ("Broken", "no weights at /data/weights", "without arguments"),
        ("number", "'int' object is not callable", "without arguments"),
        ("build_nothing", "returns a int, not a torch.nn.Module", ""),
        ("Talks", "the output of", "return a tensor"),
        ("Silent", "the output of", "return a tensor"),
        ("Counts", "is not a tensor: it contains Tensor, int", "return a tensor"),
    ],
)
def test_what_the_file_names_is_no_model(file: Path, name: str, message: str, hint: str) -> None:
    refused = refusal(f"{file}:{name}", input_shape=(16,))
    assert message in refused.message
    assert hint in refused.hint
    assert_shows_only_the_users_code(refused)


def assert_shows_only_the_users_code(refused: GolowError) -> None:
    """A traceback in it, if there is one, has none of golow's, torch's or Python's own frames."""
    frames = [line for line in refused.message.splitlines() if line.lstrip().startswith("File ")]
    assert all("mynet.py" in frame or "neighbour.py" in frame for frame in frames)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f():\n    return {}['weights']\n\nf()\n", ("line 2", "KeyError: 'weights'")),
        ("def f(:\n", ("line 1", "SyntaxError")),
        ("import no_such_package\n", ("line 1", "No module named 'no_such_package'")),
        ("import sys\nsys.exit('usage: mynet.py FILE')\n", ("line 2", "SystemExit: usage")),
        ("import neighbour\n", ("neighbour.py", "line 1", "ZeroDivisionError")),
        ("\n".join(f"def f{i}(): f{i + 1}()" for i in range(9)) + "\nf0()", ("f9", "NameError")),
    ],
)
def test_a_file_that_does_not_import(
    file: Path, tmp_path: Path, code: str, words: tuple[str, ...]
) -> None:
    """The user's own traceback, shortened to its end."""
    file.write_text(code)
    (tmp_path / "neighbour.py").write_text("1 / 0\n")
    refused = refusal(f"{file}:Net", input_shape=(16,))
    assert f"{file} cannot be imported:" in refused.message
    for word in words:
        assert word in refused.message
    assert len(refused.message.splitlines()) <= 15
    assert_shows_only_the_users_code(refused)


def test_a_forward_pass_that_fails_shows_where(file: Path) -> None:
    """In the user's code, however deep torch is beneath and above it."""
    refused = refusal(f"{file}:Fails", batch=2, input_shape=(15,))
    assert "does not accept an input of 2x15" in refused.message
    assert "mat1 and mat2 shapes cannot be multiplied" in refused.message
    assert "return self.fc(x)" in refused.message
    assert "--input" in refused.hint
    assert_shows_only_the_users_code(refused)


@pytest.mark.parametrize("data", [b"", b"no program", b"PK\x03\x04 no program either"])
def test_a_program_that_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "mine.pt2").write_bytes(data)
    refused = refusal(str(tmp_path / "mine.pt2"), input_shape=(16,))
    assert "mine.pt2 is not an exported program that torch" in refused.message
    assert "torch.export.save" in refused.hint


# ---------------------------------------------------------------- randomness


RANDOM = """
import torch
from torch import nn
from torch.nn import functional

class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(functional.dropout(x, 0.5{training}))

class Layers(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(16, 4), nn.Dropout(0.5), nn.Dropout(0.0), nn.Dropout1d(0.1))
"""


def test_dropout_layers_are_known(file: Path) -> None:
    file.write_text(RANDOM.format(training=""))
    trained = prepare(Request(f"{file}:Layers", input_shape=(16,), mode="train"))
    assert trained.workload.random_layers == ("1", "3")
    assert prepare(Request(f"{file}:Layers", input_shape=(16,))).workload.random_layers == ()


def test_a_step_that_is_random_otherwise_is_refused(file: Path) -> None:
    file.write_text(RANDOM.format(training=", training=self.training"))
    refused = refusal(f"{file}:Functional", input_shape=(16,), mode="train")
    assert "is random in training, beyond its nn.Dropout layers" in refused.message
    assert "instead of functional.dropout" in refused.hint
    prepare(Request(f"{file}:Functional", input_shape=(16,)))  # in inference it drops nothing


def test_inference_that_is_random_is_refused(file: Path) -> None:
    """functional.dropout drops in inference too unless told otherwise, and every level would then
    match a reference that is as far from eager as from anything else."""
    file.write_text(RANDOM.format(training=""))
    refused = refusal(f"{file}:Functional", input_shape=(16,))
    assert "is random in inference" in refused.message


def test_what_is_not_a_number_is_not_random(file: Path) -> None:
    file.write_text(FILE.replace("return self.fc(x)", "return self.fc(x) * float('nan')"))
    prepare(Request(f"{file}:Net", input_shape=(16,)))
    prepare(Request(f"{file}:Net", input_shape=(16,), mode="train"))


def test_what_a_model_prints_does_no_harm(file: Path, tmp_path: Path) -> None:
    """Neither at import nor in the forward pass, by whatever means."""
    speech = "print('at work'); import os; os.write(1, b'{}\\n')"
    loud = textwrap.dedent(FILE).replace("return self.fc(x)", f"{speech}; return self.fc(x)")
    file.write_text(f"print('imported')\n{loud}")
    assert_computes(prepare(Request(f"{file}:Net", input_shape=(16,))), tmp_path)
