"""Outputs in memory of the context, which later calls write again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.levels.called.lent_outputs import DEBUG
from golow.levels.direct.onednn.level import probe
from support.direct.compiled_modules import X, close, compiled

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


class Two(nn.Module):
    """A floating-point output and one of integers."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scores = self.module(x)
        return {"scores": scores, "best": scores.argmax(1)}


def test_what_is_borrowed_is_written_again(module: nn.Module) -> None:
    f = compiled(module, X, batch=[2, 4])
    first = f(X, borrow=True)
    assert close(first, module(X))
    second = f(X * 2, borrow=True)
    assert second.data_ptr() == first.data_ptr()
    assert close(second, module(X * 2))
    f(X * 3)
    assert close(second, module(X * 2)), "a call that does not borrow"
    assert close(f(X[:1], borrow=True), module(X[:1])), "padded"


def test_contexts_lend_memory_of_their_own(module: nn.Module) -> None:
    f = compiled(module, X)
    one, other = f(X, borrow=True), f.context()(X * 2, borrow=True)
    assert close(one, module(X))
    assert close(other, module(X * 2))


def test_in_debug_mode_an_old_result_is_spoiled(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEBUG, "1")
    two = Two(module).eval()
    f = compiled(two, X)
    first = f(X, borrow=True)
    assert torch.equal(first["best"], two(X)["best"])
    second = f(X * 2, borrow=True)
    assert first["scores"].isnan().all()
    assert (first["best"] < 0).all()
    assert close(second["scores"], two(X * 2)["scores"])
