"""`golow.compile(..., share=True)`: a plan reads the module's own weights, all of them or none."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.onednn.level import probe
from golow.levels.direct.onednn.run import called_plan
from golow.models.llama import Llama, LlamaSizes
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, close, compiled, network
from support.direct.texts import causal, tokens
from support.examples import examples

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(64, 3)).eval()


def llama() -> nn.Module:
    torch.manual_seed(0)
    return Llama(LlamaSizes(vocabulary=50, width=32, layers=2, heads=4)).eval()


def bytes_of(module: nn.Module) -> int:
    return sum(item.nbytes for item in module.state_dict().values())


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return mlp()


@pytest.fixture(scope="module")
def f(module: nn.Module) -> CompiledModule:
    return compiled(module, torch.randn(8, 20), batch=[1, 4, 8], share=True)


@examples(20)
@given(rows=st.integers(1, 8), rate=st.floats(-0.5, 0.5), seed=st.integers(0, 99))
def test_a_step_of_an_optimizer_is_seen_at_once(
    f: CompiledModule, module: nn.Module, rows: int, rate: float, seed: int
) -> None:
    x = torch.randn(rows, 20, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=rate)
    assert torch.allclose(f(x), module(x), rtol=1e-4, atol=1e-4)
    module.load_state_dict(mlp().state_dict())
    assert close(f(x), module(x))


def test_weights_take_no_memory_twice(f: CompiledModule, module: nn.Module) -> None:
    x = torch.randn(8, 20)
    assert compiled(module, x).memory()["weights"] >= bytes_of(module)
    assert compiled(module, x, share=True).memory()["weights"] == 0
    assert f.memory()["weights"] == 0


@pytest.mark.slow
def test_a_language_model_is_shared_at_each_length() -> None:
    module = llama()
    f = compiled(module, tokens(2, 6), batch=[1, 2], sequence=[4, 8], share=True)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.1)
    for rows, length in ((1, 4), (2, 7), (1, 1)):
        assert close(f(tokens(rows, length)), module(tokens(rows, length)))
    assert f.check(tokens(2, 7)).matches
    assert f.memory()["weights"] < bytes_of(module) / 4


@pytest.mark.parametrize(
    ("make", "inputs", "words"),
    [
        (network, X, r"but 0.weight \(folded_weight\) is folded"),
        (causal, tokens(1, 8), r"but transformer.wpe.weight \(take\) is folded"),
        (lambda: nn.LSTM(8, 8, batch_first=True).eval(), torch.randn(2, 3, 8), "weight_hh_l0"),
    ],
)
def test_a_weight_that_must_be_prepared_is_named(
    make: Callable[[], nn.Module], inputs: torch.Tensor, words: str
) -> None:
    with pytest.raises(GolowError, match=words):
        compiled(make(), inputs, share=True)


def test_without_the_refusal_some_weights_would_follow_and_others_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted error: nobody asks which weights are prepared."""

    def none(_: object) -> Iterator[tuple[str, str]]:
        return iter(())

    monkeypatch.setattr(called_plan, "prepared", none)
    module = network()
    f = compiled(module, X, share=True)
    before = f(X)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    assert not torch.equal(f(X), before)
    assert not close(f(X), module(X))


def test_weights_live_as_long_as_a_context() -> None:
    module, x = mlp(), torch.randn(8, 20)
    f = compiled(module, x, share=True)
    context, before = f.context(), f(x)
    del f, module
    gc.collect()
    other = [torch.full((64, 64), torch.nan) for _ in range(200)]
    assert torch.equal(context(x), before)
    assert len(other) == 200


def test_its_weights_are_loaded_into_the_module(f: CompiledModule) -> None:
    with pytest.raises(GolowError, match=r"shared with the module .*\n.*module's load_state_dict"):
        f.load_state_dict(mlp().state_dict())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tune": True}, "tune=True chooses layouts of weights"),
        ({"level": "eager"}, "share=True is for the direct levels"),
    ],
)
def test_what_does_not_go_with_sharing_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(GolowError, match=words):
        compiled(mlp(), torch.randn(8, 20), share=True, **options)
