"""The activations of `cudnn`: their C is compiled for the CPU and compared with PyTorch."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import Tensor

from golow.levels.direct.formulas.activation_formulas import (
    NO_CLIP,
    RELU,
    clip_of,
    derivative,
    formulas,
    value,
)
from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import activation_functions
from support.graphs.activation_examples import ACTIVATIONS, text

FUNCTION = """
extern "C" void {name}(const float* first, const float* second, float* y, int count) {{
  for (int i = 0; i < count; ++i) {{
    const float a = first[i], b = second[i];
    y[i] = {expression};
  }}
}}
"""
# Where formulas change, and where an exponential is infinite.
POINTS = torch.cat(
    [
        torch.tensor([0.0, 300.0, -300.0, 3.0, -3.0, 6.0, 1.0, -1.0]),
        torch.randn(2000, generator=torch.Generator().manual_seed(0)) * 4,
    ]
)


Evaluate = Callable[[str, Tensor, Tensor], Tensor]


def expressions() -> Iterator[str]:
    """All that there are."""
    for activation in ACTIVATIONS:
        yield value(activation, "a")
        for from_result in (False, True):
            with suppress(ValueError):
                yield derivative(activation, "a", "b", from_result)


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    """Computes one of the expressions over a and b."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("formulas")
    names = {expression: f"f{index}" for index, expression in enumerate(expressions())}
    functions = (FUNCTION.format(name=name, expression=e) for e, name in names.items())
    (folder / "formulas.cpp").write_text("#include <cmath>\n" + "".join(functions))
    command = [compiler, "-O1", "-shared", "-fPIC", "formulas.cpp", "-o", "formulas.so"]
    subprocess.run(command, check=True, cwd=folder)
    library = ctypes.CDLL(str(folder / "formulas.so"))

    def run(expression: str, a: Tensor, b: Tensor) -> Tensor:
        y = np.empty(len(a), np.float32)
        arrays = [a.float().numpy(), b.float().numpy(), y]
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
        getattr(library, names[expression])(*pointers, len(a))
        return torch.from_numpy(y)

    return run


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=text)
def test_an_activation_is_that_of_pytorch(evaluate: Evaluate, activation: Activation) -> None:
    function, numbers = activation_functions()[activation.name], activation.numbers
    found = evaluate(value(activation, "a"), POINTS, POINTS)
    expected = function.forward(POINTS.double(), *numbers)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    nothing = torch.full((1,), torch.nan)
    assert evaluate(value(activation, "a"), nothing, nothing).isnan().all()


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=text)
def test_its_gradient_is_that_of_pytorch(evaluate: Evaluate, activation: Activation) -> None:
    """From whatever the function says that its gradient can be had from."""
    function, numbers = activation_functions()[activation.name], activation.numbers
    x = POINTS.double()
    gradient = torch.randn(len(POINTS), generator=torch.Generator().manual_seed(1))
    y = function.forward(x, *numbers)
    for of, from_result in ((x, False), (y, True)):
        if function.reads not in ("either", "result" if from_result else "argument"):
            with pytest.raises(ValueError, match=f"{activation.name} has no gradient from its"):
                derivative(activation, "a", "b", from_result)
            continue
        found = evaluate(derivative(activation, "a", "b", from_result), gradient, of)
        expected = function.backward(gradient.double(), of.float().double(), *numbers)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_wrong_formula_is_seen(evaluate: Evaluate) -> None:
    wrong = value(Activation(name="gelu_tanh"), "a")
    right = activation_functions()["gelu"].forward(POINTS.double())
    with pytest.raises(AssertionError):
        torch.testing.assert_close(
            evaluate(wrong, POINTS, POINTS).double(), right, rtol=1e-5, atol=1e-6
        )


def test_every_activation_of_the_vocabulary_has_a_file() -> None:
    assert formulas().keys() == activation_functions().keys()


def test_engines_and_norms_take_in_what_clips() -> None:
    assert clip_of(None) == NO_CLIP
    assert clip_of(Activation(name="relu")) == RELU
    assert clip_of(Activation(name="clip", numbers=(-1.0, 2.0))) == (-1.0, 2.0)
    others = {a.name for a in ACTIVATIONS if clip_of(a) is None}
    assert others == formulas().keys() - {"relu", "clip"}
