"""What `prepare` refuses: models that are none, that misbehave, or that are random where they must
not be; numbers at their extremes; programs that hold code."""

from __future__ import annotations

import math
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from golow.records.errors import GolowError
from golow.records.workload import Mode, Optimizer
from golow.workload.prepare import prepare
from golow.workload.request import Request
from hostile import models
from support.command import golow
from support.models.model_files import (
    FILE,
    assert_computes,
    refusal,
)

pytestmark = pytest.mark.usefixtures("forked", "own_imports")


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
        (
            "mine.models.Net",
            "there is no model 'mine.models.Net'",
            "did you mean mine.models:Net? ",
        ),
        ("mine.pt", "mine.pt is not code", "--weights FILE.safetensors"),
        ("mine.onnx", "mine.onnx is not code", "file.py:Name"),
    ],
)
def test_there_is_no_such_model(model: str, message: str, hint: str) -> None:
    refused = refusal(model, input_shape=(16,))
    assert message in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("net.py", "write net.py:One; it has One, Two."),
        ("broken.py", "write broken.py:ClassName or broken.py:build."),
        ("./net:One", "did you mean net.py:One? "),
        ("net", " net.py:NAME? "),
        ("./hub:tiny", "did you mean hub/hubconf.py:tiny? "),
        ("https://host/models/net", "give file.py:Name"),
    ],
)
def test_a_file_without_the_name_of_a_model(
    model: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("class One: ...\nclass Two: ...\nraise SystemExit\n")
    (tmp_path / "broken.py").write_text("class One\n")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "hubconf.py").write_text("def tiny(): ...\n")
    refused = refusal(model, input_shape=(16,))
    assert "no model" in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("Nett", "has no 'Nett'", "mynet.py:Net? it has Net, "),
        ("NET", "has no 'NET'", "mynet.py:Net? it has Net, "),
        ("bild", "has no 'bild'", "mynet.py:build? it has build, build_nothing, "),
        ("xyzzy", "has no 'xyzzy'", "it has "),
        ("", "has no ''", "it has Net, Versioned, Needy, Broken, "),
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


def test_a_package_may_collect_models_of_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "nets.py").write_text(FILE)
    (package / "__init__.py").write_text("from .nets import Net, build\n")
    monkeypatch.chdir(tmp_path)
    refused = refusal("mypackage:Nett", input_shape=(16,))
    assert refused.message == "mypackage has no 'Nett'"
    assert refused.hint == "did you mean mypackage:Net? it has Net, build."
    refused = refusal("mypackage:Net(16)", input_shape=(16,))
    assert refused.hint.endswith("def build(): return Net(16), and give mypackage:build.")
    refused = refusal("mypackage/nets.py:Nett", input_shape=(16,))
    assert refused.hint.startswith("did you mean mypackage/nets.py:Net? it has Net, ")


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


@pytest.mark.parametrize(
    ("code", "line", "hint"),
    [
        (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('width')\nparser.parse_args([])\n",
            "parser.parse_args([])",
            "move what it does as a script into a function",
        ),
        ("from .neighbour import x\n", "from .neighbour import x", "from the folder above: "),
        ("import json\njson.loads('{')\n", "json.loads('{')", ""),
    ],
)
def test_an_import_that_fails_shows_the_users_line(
    file: Path, code: str, line: str, hint: str
) -> None:
    """Not those of the standard library that it called."""
    file.write_text(code)
    refused = refusal(f"{file}:Net", input_shape=(16,))
    assert f"    {line}\n" in refused.message
    assert refused.message.count("File ") == 1
    assert hint in refused.hint


def test_a_forward_pass_that_fails_shows_where(file: Path) -> None:
    """In the user's code, however deep torch is beneath and above it."""
    refused = refusal(f"{file}:Fails", batch=2, input_shape=(15,))
    assert "does not accept an input of 2x15" in refused.message
    assert "mat1 and mat2 shapes cannot be multiplied" in refused.message
    assert "return self.fc(x)" in refused.message
    assert "--input" in refused.hint
    assert "example_inputs=" in str(refused), "a user of Python may have given them"
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
        return self.fc(functional.rrelu(x, training=True))

class Layers(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(16, 4), nn.Dropout(0.5), nn.Dropout(0.0), nn.Dropout1d(0.1))
"""


def test_dropout_layers_are_known(file: Path) -> None:
    file.write_text(RANDOM)
    trained = prepare(Request(f"{file}:Layers", input_shape=(16,), mode="train"))
    assert trained.workload.random_layers == ("1", "3")
    assert prepare(Request(f"{file}:Layers", input_shape=(16,))).workload.random_layers == ()


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_step_that_is_random_otherwise_is_refused(file: Path, mode: Mode) -> None:
    """Every level would match a reference that is as far from eager as from anything else."""
    file.write_text(RANDOM)
    refused = refusal(f"{file}:Functional", input_shape=(16,), mode=mode)
    doing = "training" if mode == "train" else "inference"
    assert f"is random in {doing}, beyond dropout and the draws" in refused.message
    assert "by these names" in refused.hint


COUNTS = """
import torch
from torch import nn

class Seen(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.fc(x)

class Used(Seen):
    def forward(self, x):
        return super().forward(x) * self.count

class Assigned(Seen):
    def forward(self, x):
        self.count = self.count * 0.5 + 1
        return self.fc(x) * self.count
"""


@pytest.mark.parametrize("name", ["Used", "Assigned"])
def test_an_inference_that_depends_on_the_one_before_is_refused(file: Path, name: str) -> None:
    """A level that warms up by calling the model would be said to differ."""
    file.write_text(COUNTS)
    refused = refusal(f"{file}:{name}", input_shape=(16,))
    assert "in inference changes its buffers (count), and the next result" in refused.message


def test_an_inference_that_only_counts_is_taken(file: Path) -> None:
    file.write_text(COUNTS)
    prepare(Request(f"{file}:Seen", input_shape=(16,)))


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


# ---------------------------------------------------------------- models that misbehave

MODEL = """
import os, sys, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 4)
    def forward(self, x):
        y = self.fc(x)
        {forward}
        return y
{rest}
"""


@pytest.mark.parametrize(
    ("forward", "rest", "words"),
    [
        ("pass", "sys.exit(0)", "cannot be imported:"),
        ("pass", "raise BaseException('all')", "BaseException: all"),
        ("pass", "raise RuntimeError('no' * 10)", "RuntimeError: nonono"),
        ("pass", "f = lambda n: f(n); f(0)", "RecursionError"),
        ("pass", "Net = Net(", "SyntaxError"),
        ("pass", "def __getattr__(n): sys.exit(n)\ndel Net", "does not give 'Net'"),
        ("pass", "Net.state_dict = lambda s: 1 / 0", "Net is not a whole torch.nn.Module"),
        ("pass", "Net.__init__ = lambda s: None", "Net is not a whole torch.nn.Module"),
        ("sys.exit(0)", "", "does not accept an input of 8x16"),
        ("y = y.to_sparse()", "", "contains a sparse tensor"),
        ("y = y.to('meta')", "", "contains a meta tensor"),
        ("y = y.to(torch.float8_e4m3fn)", "", "cannot be compared"),
        ("y = y.expand(10**7, 10**3, 8, 4)", "", "two results of"),
    ],
)
def test_a_model_that_misbehaves(forward: str, rest: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mynet.py"
    file.write_text(MODEL.format(forward=forward, rest=rest))
    assert words in refusal(f"{file}:Net", input_shape=(16,)).message


def test_a_process_that_a_model_forks_does_not_go_on(tmp_path: Path) -> None:
    file, ran = tmp_path / "mynet.py", tmp_path / "ran"
    file.write_text(MODEL.format(forward="pass", rest="child = os.fork()"))
    parent = os.getpid()
    prepared = prepare(Request(f"{file}:Net", input_shape=(16,)))
    if os.getpid() != parent:  # it does go on: leave a trace, and not a second pytest
        ran.touch()
        os._exit(0)
    child = sys.modules[type(prepared.module).__module__].child
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert not ran.exists()


def test_a_file_that_is_not_utf8_or_names_its_encoding(tmp_path: Path) -> None:
    file = tmp_path / "mynet.py"
    text = MODEL.format(forward="pass", rest="name = 'ü'")
    file.write_bytes(text.encode("latin-1"))
    assert "is not UTF-8 text: byte 0xfc" in refusal(f"{file}:Net", input_shape=(16,)).message
    file.write_bytes(b"# coding: latin-1" + text.encode("latin-1"))
    prepare(Request(f"{file}:Net", input_shape=(16,)))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"batch": 10**12}, "4 batches of 1000000000000 samples of 1x28x28 do not fit into memory"),
        ({"resolution": 10**9}, "mlp cannot be built with"),
        ({"classes": 10**12}, "mlp cannot be built with"),
        ({"seed": -1}, "-1 is not a seed"),
        ({"seed": 10**30}, "is not a seed: a whole number from 0 to 2^64 - 1"),
        ({"seed": 0.5}, "the seed 0.5 is not a whole number"),
        ({"batch": "8"}, "the batch '8' is not a whole number"),
        ({"resolution": 32.0}, "the resolution 32.0 is not a whole number"),
        ({"channels": 0}, "mlp needs channels of at least 1"),
        ({"threads": 10**12}, "1000000000000 threads are more than"),
        ({"optimizer": Optimizer(momentum=math.nan)}, "--momentum nan is not a finite number"),
    ],
)
def test_numbers_at_their_extremes(asked: dict[str, Any], words: str) -> None:
    assert words in refusal("mlp", **asked).message


def test_examples_that_are_no_plain_tensors() -> None:
    model = nn.Linear(8, 4)
    assert "a sparse tensor" in refusal(model, torch.ones(2, 8).to_sparse()).message
    assert "a meta tensor" in refusal(model, torch.ones(2, 8, device="meta")).message
    assert "a model is a name or a torch.nn.Module" in refusal(7).message  # type: ignore[arg-type]
    assert "construct it: Linear()" in refusal(nn.Linear).hint  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        models.evil_sample_inputs,
        models.evil_bare_pickle,
        models.evil_weight,
        models.evil_constant,
        models.compiled_library,
        models.evil_older_format,
        models.bomb,
    ],
)
def test_a_program_that_holds_code_is_not_read(
    change: Callable[[bytes, Random], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = change(models.exported(), Random(0))  # noqa: S311
    (tmp_path / "mine.pt2").write_bytes(program)
    assert (
        "mine.pt2 is not read, because it may hold code"
        in refusal("mine.pt2", input_shape=(8,)).message
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.pt2"]


@pytest.mark.parametrize(
    "command",
    ["compare mlp", "profile mlp", "audit mlp", "train mlp --dataset digits"],
)
@pytest.mark.parametrize("threads", ["0", "-1"])
def test_no_threads_are_refused_by_every_program(
    command: str, threads: str, tmp_path: Path
) -> None:
    ended = golow(*command.split(), "--threads", threads, folder=tmp_path)
    assert ended.status == 2
    assert f"{threads} threads compute nothing" in ended.error
