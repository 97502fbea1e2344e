"""What a call of a compiled module runs in Python, and the memory that it allocates."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
import torch
from torch import Tensor, nn

from golow.compiled.compiled_module import CompiledModule
from golow.levels.called import processor
from golow.levels.called.outputs import Outputs
from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.level import probe
from golow.levels.direct.onednn.run.kernel_compilation import openmp, set_threads
from golow.lower.capture.module_outputs import flattened
from support.direct.compiled_modules import X, close, compiled

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


def functions_of(f: CompiledModule, x: Tensor) -> list[str]:
    """The functions of Python that a call runs."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        f(x)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")
def test_a_call_runs_few_functions_of_python(f: CompiledModule) -> None:
    """Each takes as long as a small layer, and more while the processor's caches are cold."""
    f(X)
    assert functions_of(f, X) == [
        "Context.__call__",
        "ExactInputs.__call__",
        "Outputs.new",
        "Iterations.run",
    ]


def test_outputs_are_on_the_device_of_the_plan(f: CompiledModule, module: nn.Module) -> None:
    """Whatever device is the default of the caller's, and in every mode."""
    with torch.device("meta"):
        found = f(X)
    assert close(found, module(X))
    with torch.inference_mode():
        assert f(X).is_inference()
    assert not f(X).is_inference()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4), (4, 1, 1, 5)])
def test_new_memory_is_row_major(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    form = (
        torch.empty(shape, dtype=dtype).transpose(0, -1) if shape else torch.empty((), dtype=dtype)
    )
    outputs = Outputs(flattened(form)[1], {(1, 0): [form]}, torch.device("cpu"), [()])
    [made] = outputs.new((1, 0))
    assert type(made) is Tensor
    assert (made.shape, made.dtype) == (form.shape, dtype)
    assert made.stride() == torch.empty(form.shape).stride()
    assert outputs.whole([made]) is made


def test_a_call_has_its_number_of_threads_after_others_were_set(module: nn.Module) -> None:
    one = compiled(module, X)
    one(X)
    set_threads(2)
    one(X)
    assert openmp().omp_get_max_threads() == 1


def test_calls_read_and_write_the_callers_memory_without_a_compiler(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "find_compiler", lambda: None)
    f, y = compiled(module, X, batch=[2, 4]), torch.empty(4, 5)
    set_threads(2)
    kept = [(f(X[:rows] * k), X[:rows] * k) for k in range(2) for rows in (2, 3, 4)]
    assert openmp().omp_get_max_threads() == 1
    assert f(X * 3, out=y) is y
    for found, given in (*kept, (y, X * 3)):
        assert close(found, module(given))
