"""A network that is compiled and saved once for each file of tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from golow.artifact.loaded_module import LoadedModule
from golow.artifact.loading import load_compiled
from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.onednn.level import probe
from support.direct.compiled_modules import X, compiled, network


@pytest.fixture(scope="module", autouse=True)
def onednn() -> None:
    if not probe().available:
        pytest.skip("oneDNN is not installed")


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return network()


@pytest.fixture(scope="module")
def f(module: nn.Module) -> CompiledModule:
    return compiled(module, X, batch=[1, 2, 4])


@pytest.fixture(scope="module")
def saved(f: CompiledModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("saved") / "network.golow"
    f.save(file)
    return file


@pytest.fixture(scope="module")
def loaded(saved: Path) -> LoadedModule:
    return load_compiled(saved)
