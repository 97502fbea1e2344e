"""Arguments of a call beside the example's, and what cannot be called or copied: each is named."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import close, compiled

LEVELS = ["eager", "torchscript"]
if probe().available:
    LEVELS.append("onednn")
ON_ONEDNN = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Scaled(nn.Module):
    """Takes more than the example has."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, scale: float = 2.0, *, name: str = "a"
    ) -> Tensor:
        y = x * scale
        return y if mask is None else y * mask


def at(level: str, module: nn.Module, example: Any, **options: Any) -> Any:
    return golow.compile(module.eval(), example, level=level, threads=1, quiet=True, **options)


# ---------------------------------------------------------------- defaults


@pytest.mark.parametrize("level", LEVELS)
def test_what_the_example_left_out_may_be_given_as_its_default(level: str) -> None:
    f, wanted = at(level, Scaled(), X), X * 2
    for named in ({"mask": None}, {"scale": 2.0}, {"name": "a"}, {"mask": None, "scale": 2.0}):
        assert close(f(X, **named), wanted)
        assert close(f(x=X, **named), wanted)
    assert close(f(X, None), wanted)
    assert close(f(X, None, 2.0), wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_an_example_may_have_defaults(level: str) -> None:
    f = at(level, Scaled(), {"x": X, "mask": None, "scale": 2.0})
    assert close(f(x=X), X * 2)
    assert close(f({"x": X, "mask": None}), X * 2)


@pytest.mark.parametrize(
    ("call", "words", "hint"),
    [
        (lambda f: f(X, scale=3.0), "with its default, 2.0", "wrap the module in one that sets it"),
        (lambda f: f(X, scale=2), "with its default, 2.0", "wrap the module"),
        (lambda f: f(X, name="b"), "with its default, 'a'", "wrap the module"),
        (lambda f: f(X, mask=X), "mask was not in the example", 'has it: {"x": x, "mask": mask}'),
        (lambda f: f(X, X), "mask was not in the example", 'has it: {"x": x, "mask": mask}'),
        (lambda f: f(X, maks=None), "maks is not an input; this was compiled for x", ""),
        (lambda f: f(X, x=X), "input x is given twice; this was compiled for x", ""),
        (lambda f: f(X, None, 2.0, "a"), "4 inputs are too many", ""),
    ],
)
@pytest.mark.parametrize("level", LEVELS)
def test_another_value_says_what_to_compile(
    level: str, call: Callable[[Any], object], words: str, hint: str
) -> None:
    with pytest.raises(GolowError) as raised:
        call(at(level, Scaled(), X))
    assert words in raised.value.message
    assert hint in raised.value.hint


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("level", LEVELS)
def test_it_is_not_copied(level: str, copied: Callable[[object], object]) -> None:
    f = at(level, Scaled(), X)
    with pytest.raises(GolowError, match="cannot be copied or pickled") as raised:
        copied(f)
    assert "golow.compile" in raised.value.hint
    assert ("f.context()" in raised.value.hint) == (level == "onednn")
    if level == "onednn":
        with pytest.raises(GolowError, match="cannot be copied"):
            copied(f.context())
    assert close(f(X), X * 2)


# ---------------------------------------------------------------- torch.func


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: torch.vmap(f)(torch.ones(2, 3, 4)),
        lambda f: torch.func.grad(lambda x: f(x).sum())(X),
        lambda f: torch.func.jvp(f, (X,), (X,)),
    ],
    ids=["vmap", "grad", "jvp"],
)
@pytest.mark.parametrize("level", LEVELS)
def test_transformations_are_refused(level: str, transformed: Callable[[Any], object]) -> None:
    f = at(level, Scaled(), X)
    with pytest.raises(GolowError, match=r"input 0 is a tensor of torch\.func, such as vmap"):
        transformed(f)
    assert close(f(X), X * 2)


# ---------------------------------------------------------------- complex numbers


class Parts(nn.Module):
    """Reads the parts of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(torch.view_as_real(x).flatten(-2))
        return found


@ON_ONEDNN
def test_complex_inputs_are_read_and_checked() -> None:
    module, x = Parts().eval(), torch.randn(4, 4, dtype=torch.complex64)
    f = compiled(module, x, batch=[1, 4])
    assert close(f(x), module(x))
    assert close(f(x[:3]), module(x[:3]))
    assert close(f(x.conj()), module(x.conj().resolve_conj()))
    assert f.check(x).matches


@ON_ONEDNN
def test_complex_text_is_padded() -> None:
    module, x = Parts().eval(), torch.randn(2, 8, 4, dtype=torch.complex64)
    f = compiled(module, x, batch=2, sequence=8)
    assert close(f(x[:, :5]), module(x[:, :5]))


class Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x


@ON_ONEDNN
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_outputs_are_refused(dtype: torch.dtype) -> None:
    x = torch.randn(4, 4, dtype=dtype)
    with pytest.raises(GolowError, match=r"onednn cannot run it: .*output 0 is complex"):
        compiled(Squared().eval(), x)
    assert torch.equal(at("eager", Squared(), x)(x), x * x)


# ---------------------------------------------------------------- the batch


class Shifted(nn.Module):
    def forward(self, shift: Tensor, x: Tensor) -> Tensor:
        return x.relu() + shift


@ON_ONEDNN
@pytest.mark.parametrize("shift", [torch.tensor(2.0), torch.arange(4.0), torch.ones(1, 4)])
def test_the_batch_is_that_of_whichever_input_has_it(shift: Tensor) -> None:
    f = compiled(Shifted().eval(), (shift, X), batch=[1, 2, 8])
    for rows in (1, 2, 3, 7):
        x = torch.randn(rows, 4)
        assert close(f(shift, x), x.relu() + shift)
    with pytest.raises(GolowError, match="input 1 is 9x4; this was compiled for batches"):
        f(shift, torch.randn(9, 4))


@ON_ONEDNN
def test_without_sizes_the_batch_is_that_of_the_first_input_with_an_axis() -> None:
    f = compiled(Shifted().eval(), (torch.tensor(2.0), X))
    assert f.inputs.batch == 3
    assert close(f(torch.tensor(1.0), X), X.relu() + 1)


class Outer(nn.Module):
    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return (one[:, None] * other).flatten()


@ON_ONEDNN
@pytest.mark.parametrize(
    ("module", "example", "words"),
    [
        (Outer(), (torch.ones(2), torch.ones(3)), "the inputs are 2, 3, and both 2 and 3 can be"),
        (nn.Bilinear(2, 3, 1), (torch.ones(2), torch.ones(3)), "none of the first axes is"),
    ],
)
def test_a_batch_that_cannot_be_told_is_an_error(
    module: nn.Module, example: tuple[Tensor, ...], words: str
) -> None:
    with pytest.raises(GolowError, match=words) as raised:
        compiled(module.eval(), example, batch=[1, 2])
    assert "leave batch= out" in raised.value.hint


# ---------------------------------------------------------------- outputs


class Returning(nn.Module):
    """Returns its input, a view of it, a weight, a buffer, and one tensor twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("kept", torch.arange(4.0))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x * self.weight
        return x, x.view(-1), self.weight, self.kept, y, y, y.view(-1)


@pytest.mark.parametrize("level", [*LEVELS, pytest.param("compile", marks=pytest.mark.slow)])
def test_outputs_are_the_callers(level: str) -> None:
    """Whoever changes one changes neither an input nor another output, nor a later call."""
    f, x = at(level, Returning(), X), X.clone()
    wanted = [item.clone() for item in f(x)]
    with torch.inference_mode():
        for place in range(len(wanted)):
            found = f(x)
            found[place].fill_(7.0)
            others = [k for k in range(len(wanted)) if k != place]
            assert all(torch.equal(found[k], wanted[k]) for k in others)
            assert torch.equal(x, X)
        assert all(map(torch.equal, f(x), wanted))
