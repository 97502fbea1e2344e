"""`golow lower --verify`: every operation of a plan against float64, and what it refuses."""

from __future__ import annotations

import pytest

from golow.check import step_rule
from golow.check.step_rule import Limit
from golow.levels.direct.onednn import level as onednn
from support.command import golow as command

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]
needs_onednn = pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")


@needs_onednn
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_every_operation_is_listed_with_its_error(mode: str) -> None:
    loss = ["--loss", "cross_entropy"] if mode == "train" else []
    ended = command("lower", "lenet5", "--mode", mode, "--level", "vendor", "--verify", *loss)
    assert ended.status == 0, ended.error
    assert "convolution" in ended.output and "match" in ended.output
    assert "results is as accurate as rounding allows" in ended.output
    assert all(len(line) <= 100 for line in ended.output.splitlines())


@needs_onednn
def test_a_wrong_operation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit of almost nothing all of them are wrong."""
    for name in ("IN_FLOAT32", "OF_TERMS"):
        monkeypatch.setattr(step_rule, name, Limit(1e-6, 1e-6))
    ended = command("lower", "lenet5", "--level", "vendor", "--verify")
    assert ended.status == 1, ended.error
    assert "convolution of layer conv1 (tanh) is off by" in ended.output
    assert "differs" in ended.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--verify",), "--verify needs a level with a plan"),
        (("--verify", "--level", "vendor", "--show"), "and nothing else"),
        (("--verify", "--level", "vendor", "--json", "-"), "and nothing else"),
        (("--verify", "--level", "libtorch"), "libtorch has no plan"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], message: str) -> None:
    ended = command("lower", "lenet5", *words)
    assert ended.status == 2
    assert message in ended.error
