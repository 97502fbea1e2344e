"""What `prepare` refuses: models that misbehave, or that are random where they must not be; numbers
at their extremes; programs that hold code."""

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
