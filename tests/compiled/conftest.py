"""A network and its compilation, once for each file of tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

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


SET_BY_LIBRARIES = ("TORCHINDUCTOR_CACHE_DIR", "_TORCHINDUCTOR_", "ORT_")


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """Takes out what PyTorch and ONNX Runtime put into the environment when they run in the tests'
    own process: other tests' processes would inherit it."""
    before = set(os.environ)
    yield
    for name in set(os.environ) - before:
        if name.startswith(SET_BY_LIBRARIES):
            del os.environ[name]
