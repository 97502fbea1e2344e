"""Compiles golow's own CUDA kernels, which needs NVRTC but no GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

from golow.levels.direct.cudnn.shared_kernels import Kernel


def assert_compile(kernels: Iterable[Kernel], architecture: str = "sm_90") -> None:
    """Compile all of them; skips the test where the compiler is not installed."""
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        pathfinder.load_nvidia_dynamic_lib("nvrtc")
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("NVRTC is not installed")
    from golow.levels.direct.cudnn.bindings.device import compile_source

    wanted: dict[str, set[str]] = defaultdict(set)
    for kernel in kernels:
        wanted[kernel.source].add(kernel.expression)
    for source, expressions in wanted.items():
        code = compile_source(source, sorted(expressions), architecture)
        assert set(code.symbol_mapping) == expressions
