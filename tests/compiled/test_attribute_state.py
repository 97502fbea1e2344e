"""State that a module keeps in attributes: a plan would have it as a constant."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import close, compiled

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


class Stateful(nn.Module):
    """Keeps something in attributes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.calls, self.layer = kind, 0, nn.Linear(6, 6)
        self.held = self._held = torch.zeros(1, 6)
        self.seen: list[Tensor] = []
        self.parts, self.memory = [torch.zeros(1, 6)], SimpleNamespace(steps=0)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "tensor":
            self.held = self.held * 0.5 + x
            return self.held
        if self.kind == "number":
            self.calls += 1
            return x * self.calls
        if self.kind == "list":
            self.seen.append(x)
            return x * len(self.seen)
        if self.kind == "private":
            self._held = self._held * 0.99 + x * 0.01
            return x - self._held
        if self.kind == "element":
            self.parts[0] = self.parts[0] + x
            return self.parts[0]
        if self.kind == "object":
            self.memory.steps += 1
            return x * self.memory.steps
        self.held = self.layer(x)  # only noted
        return self.held * 2


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tensor", "held"),
        ("number", "calls"),
        ("list", "seen"),
        ("private", "_held"),
        ("element", "parts[0]"),
        ("object", "memory.steps"),
    ],
)
def test_state_in_an_attribute_is_named(kind: str, name: str) -> None:
    with pytest.raises(GolowError, match=rf"its attribute 1\.{re.escape(name)} in each"):
        compiled(nn.Sequential(nn.ReLU(), Stateful(kind)).eval(), torch.randn(2, 6))


def test_what_a_module_only_notes_is_no_state() -> None:
    module, x = Stateful("noted").eval(), torch.randn(2, 6)
    f = compiled(module, x)
    assert close(f(x), module(x))
    assert close(f(x * 2), module(x * 2))


class Hooked(nn.Module):
    """It installs hooks on its layers in the first pass, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.installed = nn.Linear(6, 6), False

    def forward(self, x: Tensor) -> Tensor:
        if not self.installed:
            self.layer.register_forward_hook(lambda layer, given, y: y * 2)
            self.installed = True
        found: Tensor = self.layer(x)
        return found


def test_what_the_first_pass_does_to_the_module_is_not_done_twice() -> None:
    module, x = Hooked().eval(), torch.randn(2, 6)
    f = compiled(module, {"x": x})
    assert torch.allclose(module(x), module.layer(x))
    assert len(module.layer._forward_hooks) == 1
    assert close(f(x=x), module(x))
    assert not any(name.startswith("golow") for name in vars(module))
