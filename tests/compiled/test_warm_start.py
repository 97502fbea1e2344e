"""Graphs that are kept from one process to the next: when they are used, and when not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from golow.levels.called.module_digest import module_digest
from golow.levels.direct.onednn.level import probe
from support.direct.compiled_modules import X, close, compiled, network

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

HELPER = "def scaled(x):\n    return x * 2\n"
LAYERS = """
import torch
from torch import nn
import golow_test_helper

FACTOR = 1.0


class Small(nn.Module):
    def __init__(self, shift=1.0):
        super().__init__()
        self.shift = shift
        self.layer = nn.Linear(6, 6)
        self.register_buffer("table", torch.ones(6), persistent=False)

    def forward(self, x):
        return golow_test_helper.scaled(self.layer(x)) * FACTOR + self.shift * self.table
"""
PROGRAM = """
import sys, torch, golow
from torch import nn

torch.manual_seed(0)
module, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.ones(2, 3, 8, 8)
f = golow.compile(module, x, quiet=True, threads=1)
print("golow.lower.capture.capture" in sys.modules, f(x).double().sum().item())
"""


def imported(folder: Path, name: str, text: str) -> ModuleType:
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "golow_test_helper", None)
    monkeypatch.setitem(sys.modules, "golow_test_layers", None)
    imported(tmp_path, "golow_test_helper", HELPER)
    return imported(tmp_path, "golow_test_layers", LAYERS)


@pytest.mark.slow
def test_another_process_neither_captures_nor_lowers(tmp_path: Path) -> None:
    environment = os.environ | {"GOLOW_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM]
    said = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    (first, one), (second, other) = (line.split() for line in said)
    assert (first, second) == ("True", "False")
    assert one == other


def test_weights_are_no_part_of_the_digest_and_all_else_is(layers: ModuleType) -> None:
    torch.manual_seed(0)
    first, second = layers.Small(), layers.Small()
    digest = module_digest(first)
    assert digest is not None
    assert module_digest(second) == digest, "other weights"
    assert module_digest(layers.Small(shift=2.0)) != digest
    assert module_digest(first, "another level") != digest
    second.table[3] = 5.0
    assert module_digest(second) != digest, "a tensor outside the state dict"
    second = layers.Small()
    second.layer = nn.Linear(6, 6, bias=False)
    assert module_digest(second) != digest


def test_tied_weights_are_told_from_equal_ones() -> None:
    tied, free = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2))
    tied[1].weight = tied[0].weight
    assert module_digest(tied) != module_digest(free)


@pytest.mark.parametrize("name", ["golow_test_layers", "golow_test_helper"])
def test_an_edited_file_is_seen(layers: ModuleType, name: str) -> None:
    """Also one that the layers' file only refers to."""
    module = layers.Small()
    digest = module_digest(module)
    file = Path(str(sys.modules[name].__file__))
    file.write_text(file.read_text() + "\n# edited\n")
    assert module_digest(module) != digest


def test_a_setting_that_the_digest_misses_is_found_by_the_result(
    layers: ModuleType, tmp_path: Path
) -> None:
    module, x = layers.Small().eval(), torch.ones(2, 6)
    cache = tmp_path / "cache"
    assert close(compiled(module, x, cache=cache)(x), module(x))
    layers.FACTOR = 3.0
    assert close(compiled(module, x, cache=cache)(x), module(x))
    layers.FACTOR = 1.0
    assert close(compiled(module, x, cache=cache)(x), module(x))


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    cache, module = tmp_path / "cache", network()
    compiled(module, X, cache=cache)
    [file] = (cache / "called" / "graphs").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert close(compiled(module, X, cache=cache)(X), module(X))
    assert file.read_bytes() == whole


class Locked(nn.Module):
    """Python cannot pickle it."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def test_a_module_without_a_digest_is_captured_each_time(tmp_path: Path) -> None:
    module, x = Locked().eval(), torch.ones(2, 6)
    assert module_digest(module) is None
    for _ in range(2):
        assert close(compiled(module, x, cache=tmp_path)(x), module(x))
    assert not (tmp_path / "called" / "graphs").exists()
