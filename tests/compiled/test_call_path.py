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


class Mixed(nn.Module):
    """Steps of NumPy's read an input and write an output; other steps do both in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.linear(x.sin()), x.flip(1) + y, y.sort().values


@pytest.mark.parametrize("compiles", [True, False])
def test_calls_use_the_callers_memory(compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs the steps: results are of each call's inputs, and belong to it."""
    if not compiles:
        monkeypatch.setattr(processor, "find_compiler", lambda: None)
    torch.manual_seed(0)
    mixed, x, y = Mixed().eval(), torch.randn(4, 6), torch.randn(4, 6)
    f = compiled(mixed, (x, y))
    set_threads(2)
    out = tuple(torch.empty_like(item) for item in mixed(x, y))
    given = [(x * k, y - k) for k in range(3)]
    found = [f(*pair) for pair in given]
    assert f(x, y, out=out) is out
    assert openmp().omp_get_max_threads() == 1
    for outputs, pair in (*zip(found, given, strict=True), (out, (x, y))):
        assert all(map(close, outputs, mixed(*pair)))
    x.fill_(0.5)
    assert all(map(close, f(x, y), mixed(x, y))), "the same memory with other content"
