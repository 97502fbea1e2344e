"""Graphs that are kept from one process to the next: when they are used, and when not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from golow.levels.called.module_digest import module_digest
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, close, compiled, network

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

HELPER = "def scaled(x):\n    return x * 2\n"
LAYERS = """
import types
import torch
from torch import nn
import golow_test_helper

FACTOR = 1.0
SETTINGS = {"most": 5.0}
CONFIGURATION = types.SimpleNamespace(step=1)
activation = torch.relu


class Small(nn.Module):
    EPSILON = 1e-5

    def __init__(self, shift=1.0):
        super().__init__()
        self.shift = shift
        self.layer = nn.Linear(6, 6)
        self.register_buffer("table", torch.ones(6), persistent=False)

    def forward(self, x):
        x = activation(self.layer(x)[..., :: CONFIGURATION.step]).clamp(max=SETTINGS["most"])
        return golow_test_helper.scaled(x) * FACTOR + self.shift * self.table + self.EPSILON
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
    # Python takes what it compiled of a text as long, written within the same second.
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
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


@pytest.mark.parametrize(
    "change",
    [
        lambda layers, helper: setattr(layers, "FACTOR", 3.0),
        lambda layers, helper: layers.SETTINGS.update(most=50.0),
        lambda layers, helper: setattr(layers.CONFIGURATION, "step", 2),
        lambda layers, helper: setattr(helper, "scaled", lambda x: x * 3),
        lambda layers, helper: setattr(layers.Small, "extra", lambda self, x: x + 1),
        lambda layers, helper: setattr(layers.Small, "EPSILON", 1e-3),
        lambda layers, helper: setattr(layers, "activation", torch.tanh),
    ],
)
def test_what_code_refers_to_is_seen(
    layers: ModuleType, change: Callable[[ModuleType, ModuleType], object]
) -> None:
    """Globals, what they hold, functions of other files, and methods that were exchanged."""
    module = layers.Small()
    digest = module_digest(module)
    assert digest is not None
    assert module_digest(module) == digest
    change(layers, sys.modules["golow_test_helper"])
    assert module_digest(module) != digest


def test_a_layer_of_pytorch_that_was_patched_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = module_digest(nn.ReLU())
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x * 0.5)
    assert module_digest(nn.ReLU()) != digest


def test_what_runs_counts_and_not_the_file(layers: ModuleType, tmp_path: Path) -> None:
    """A file may have been edited since it was imported."""
    digest = module_digest(layers.Small())
    file = Path(str(layers.__file__))
    file.write_text(LAYERS.replace("* FACTOR", "* FACTOR * 2"))
    assert module_digest(layers.Small()) == digest
    again = imported(tmp_path, "golow_test_layers", file.read_text())
    assert module_digest(again.Small()) != digest


def elsewhere(folder: Path, line: str) -> nn.Module:
    """A module whose code has this line."""
    text = (
        "import os\nfrom torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n"
        f"        {line}\n"
    )
    made: nn.Module = imported(folder, "golow_test_elsewhere", text).Net()
    return made


def test_variables_of_the_environment_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = elsewhere(tmp_path, "return x if os.environ.get('GOLOW_TEST_FACTOR') else -x")
    digest = module_digest(module)
    assert digest is not None
    monkeypatch.setenv("GOLOW_TEST_FACTOR", "1")
    assert module_digest(module) != digest


def test_what_is_imported_when_code_runs_is_seen_once_it_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "golow_test_late", None)
    module = elsewhere(tmp_path, "import golow_test_late as late; return x * late.factor")
    del sys.modules["golow_test_late"]
    before = module_digest(module)
    found = []
    for factor in (2, 3):
        imported(tmp_path, "golow_test_late", f"factor = {factor}\n")
        found.append(module_digest(module))
    assert None not in found
    assert len({before, *found}) == 3


def test_what_reads_the_whole_environment_has_no_digest(tmp_path: Path) -> None:
    assert module_digest(elsewhere(tmp_path, "return x * len(os.environ)")) is None


def test_a_hook_of_all_layers_has_no_digest() -> None:
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *given: None)
    try:
        assert module_digest(network()) is None
    finally:
        hook.remove()


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


class Exported(nn.Module):
    """Does something else while it is captured."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 3 if torch.compiler.is_exporting() else x * 2


def test_what_was_captured_wrongly_is_refused(tmp_path: Path) -> None:
    """Each time, not only where a graph was kept."""
    for _ in range(2):
        with pytest.raises(GolowError, match="does not compute what the module computes"):
            compiled(Exported().eval(), torch.ones(2, 6), cache=tmp_path)


class Threshold(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x > LIMIT


LIMIT = 0.5


def test_integers_and_truths_are_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here by a stale file: the digest sees the global."""
    from golow.levels.called import kept_graphs

    monkeypatch.setattr(kept_graphs, "module_digest", lambda *given: "0" * 64)
    module, x = Threshold().eval(), torch.linspace(0, 1, 24).view(4, 6)
    assert torch.equal(compiled(module, x, cache=tmp_path)(x), module(x))
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 0.1)
    assert torch.equal(compiled(module, x, cache=tmp_path)(x), module(x))


class Cached(nn.Module):
    """Makes a table when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.linspace(0, 1, 6)
        return self.layer(x) * self.table


def test_compiling_leaves_the_module_usable() -> None:
    """Also in the mode in which people write it."""
    module, x = Cached().eval(), torch.ones(2, 6)
    with torch.inference_mode():
        f = compiled(module, x)
    assert close(f(x), module(x))
    module(x).sum().backward()
    assert module.layer.weight.grad is not None
