"""A network and its compilation, once for each file of tests."""

from __future__ import annotations

import pytest
from torch import nn

from golow.compiled.compiled_module import CompiledModule
from support.direct.compiled_modules import X, compiled, network


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return network()


@pytest.fixture(scope="module")
def f(module: nn.Module) -> CompiledModule:
    return compiled(module, X, batch=[1, 2, 4])
