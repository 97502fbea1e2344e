"""Modules that change their inputs in place: a call changes them, too, as eager does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.compiled.compiled_module import CompiledModule
from golow.levels.called import assembly
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import close, compiled
from support.examples import examples

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


class Doubles(nn.Module):
    """Reads its first input, doubles a part of it, and reads it again; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor, calls: Tensor) -> tuple[Tensor, Tensor]:
        before = x.sum(1)
        x[:, 1:4].mul_(2)
        calls.add_(1)
        return self.layer(x), before


class Rectified(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.fixture(scope="module")
def f() -> CompiledModule:
    return compiled(Rectified().eval(), torch.randn(2, 6), batch=[1, 4])


@examples(40)
@given(rows=st.integers(1, 4), seed=st.integers(0, 100), turned=st.booleans())
def test_any_call_changes_its_input_as_the_module(
    f: CompiledModule, rows: int, seed: int, turned: bool
) -> None:
    x = torch.randn(6, rows, generator=torch.Generator().manual_seed(seed)).T
    x = x if turned else x.contiguous()
    other = x.clone()
    wanted = Rectified().eval()(other)
    assert close(f(x), wanted)
    assert torch.equal(x, other)
    assert not torch.equal(x, x - 1)


def test_inputs_that_are_read_before_and_after() -> None:
    module = Doubles().eval()
    x, calls = torch.randn(2, 6), torch.tensor(3)
    own = x.clone(), calls.clone()
    f = compiled(module, (x, calls))
    assert torch.equal(x, own[0])  # compiling leaves the example alone
    assert torch.equal(calls, own[1])
    assert f.check(x, calls).matches
    assert torch.equal(x, own[0])  # so does the check
    wanted = module(*own)
    out = torch.empty(2, 3), torch.empty(2)
    assert f(x, calls, out=out) is out
    assert all(map(close, out, wanted))
    assert torch.equal(x, own[0])
    assert calls.item() == 4
    f(x, calls)
    assert calls.item() == 5


def test_what_is_kept_of_the_graph_changes_inputs_too(tmp_path: Path) -> None:
    for _ in range(2):
        x = -torch.ones(2, 6)
        compiled(Rectified().eval(), x, cache=tmp_path)(x)
        assert not x.any()


def test_arrays_are_changed_where_they_are(f: CompiledModule) -> None:
    x = -torch.ones(3, 6).numpy()
    f(x[:, ::-1])
    assert not x.any()
    x.flags.writeable = False
    with pytest.raises(GolowError, match="changes input 0, an array that is read-only"):
        f(x)


def test_without_writing_back_an_input_would_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted error: nobody asks what the module changes."""
    monkeypatch.setattr(assembly, "places_changed", lambda before, inputs: set())
    x = -torch.ones(2, 6)
    compiled(Rectified().eval(), x)(x)
    assert x.all()


class Centred(nn.Module):
    """What it does to its input depends on the batch, or on the length; its output does not."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis, self.layer = axis, nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        x -= x.mean(self.axis, keepdim=True)
        return found


def test_padding_must_not_change_them_either() -> None:
    module, x = Centred(0).eval(), torch.randn(2, 6)
    with pytest.raises(GolowError, match="input 0, which the module changes, of a sample depends"):
        compiled(module, x, batch=[1, 4])
    with pytest.raises(GolowError, match="input 0, which the module changes, depends on padding"):
        compiled(Centred(1).eval(), torch.randn(2, 5, 6), sequence=8)
    with pytest.raises(GolowError, match="input 1, which the module changes, has no batch"):
        compiled(Doubles().eval(), (x, torch.tensor(3)), batch=[1, 4])


def test_a_padded_text_is_changed_as_far_as_it_goes() -> None:
    module = Rectified().eval()
    f = compiled(module, torch.randn(2, 5, 6), batch=[1, 3], sequence=8)
    x = torch.randn(2, 7, 6)
    other = x.clone()
    wanted = module(other)
    assert close(f(x), wanted)
    assert torch.equal(x, other)
