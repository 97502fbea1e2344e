"""Mistakes in Python calls are explained as those on the command line: what is wrong, and what to
write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import golow
from golow.levels.called.given_state import StateForm
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from golow.workload.prepare import prepare
from golow.workload.request import Request

MODEL, X, Y = nn.Linear(4, 3).eval(), torch.randn(2, 4), torch.tensor([0, 1])
LOSS: Any = nn.CrossEntropyLoss
ANY: Any = "3"


def step(**options: Any) -> object:
    given = {"loss": LOSS(), "optimizer": Optimizer(), "example": (X, Y), "quiet": True}
    return golow.compile_step(nn.Linear(4, 3), **{**given, **options})


MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {
    "a text for seconds": (
        lambda: golow.compare(MODEL, X, time_limit=ANY),
        "time_limit='3' is not a number", "time_limit=60.0",
    ),
    "a text for a count": (lambda: golow.profile(MODEL, X, steps=ANY), "steps='3' is not", "=5"),
    "a text for names": (
        lambda: golow.load_test(MODEL, X, scenarios="server,offline"),
        "scenarios='server,offline' is a text, not a list", r"scenarios=\['server', 'offline'\]",
    ),
    "a text for numbers": (
        lambda: golow.load_test(MODEL, X, rates=ANY),
        "rates='3' is a text, not a list of numbers", r"rates=\[1, 2\]",
    ),
    "a time with a unit": (
        lambda: golow.load_test(MODEL, X, latency="20ms"),  # type: ignore[arg-type]
        "latency='20ms' is not a number", "times are in seconds",
    ),
    "a billion threads": (
        lambda: golow.compile(MODEL, X, level="eager", threads=10**9, quiet=True),
        "1,000,000,000 threads are more than this machine's", "use threads=",
    ),
    "a mode": (
        lambda: golow.compare(MODEL, X, mode="training"),  # type: ignore[arg-type]
        "there is no mode 'training'", "infer and train",
    ),
    "torch's optimizer": (
        lambda: prepare(
            Request(MODEL, X, mode="train", optimizer=torch.optim.SGD(MODEL.parameters()))  # type: ignore[arg-type]
        ),
        "the optimizer is of type SGD", "golow.Optimizer",
    ),
    "a class of losses": (
        lambda: prepare(Request(MODEL, X, mode="train", loss=LOSS)),
        "the loss is the class CrossEntropyLoss", r"CrossEntropyLoss\(\)",
    ),
    "a class of losses in a step": (
        lambda: step(loss=LOSS),
        "the loss is the class CrossEntropyLoss", r"CrossEntropyLoss\(\)",
    ),
    "a precision": (
        lambda: golow.compile(MODEL, X, precision="int7"),  # type: ignore[call-overload]
        "there is no precision 'int7'", "int8-weights",
    ),
    "no state dict": (
        lambda: StateForm(MODEL).fitting(None),  # type: ignore[arg-type]
        "the state dict is NoneType", "module.state_dict",
    ),
    "text from a classifier": (
        lambda: golow.compile(MODEL, generation=golow.Generation(longest=8)),
        "Linear is neither a model that golow knows", "generation.md",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_python_is_explained(name: str) -> None:
    if "step" in name and not probe().available:
        pytest.skip("oneDNN is not installed")
    call, words, hint = MISTAKES[name]
    with pytest.raises(GolowError, match=words) as caught:
        call()
    assert "\n" not in caught.value.message
    assert caught.match(hint)


def test_a_misspelt_keyword_is_answered_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"keyword argument 'level'; did you mean levels"):
        golow.audit("mlp", level="eager")  # type: ignore[call-arg]
