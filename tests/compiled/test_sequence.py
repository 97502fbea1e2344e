"""`golow.compile(..., sequence=[...])`: lengths of text between two sizes are padded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.compiled.compiled_module import CompiledModule
from golow.levels.called import building, text_inputs
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import close, compiled
from support.direct.texts import bidirectional, causal, masked, tokens
from support.examples import examples

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def gpt() -> nn.Module:
    return causal()


@pytest.fixture(scope="module")
def f(gpt: nn.Module) -> CompiledModule:
    return compiled(gpt, tokens(2, 10), batch=[1, 3], sequence=[4, 12])


@pytest.fixture(scope="module")
def bert() -> nn.Module:
    return bidirectional()


@pytest.fixture(scope="module")
def g(bert: nn.Module) -> CompiledModule:
    return compiled(bert, masked(2, 10), batch=[1, 3], sequence=[12, 4])


@pytest.mark.slow
@examples(40)
@given(rows=st.integers(1, 3), length=st.integers(1, 12), seed=st.integers(0, 1000))
def test_any_causal_call_is_the_modules(
    f: CompiledModule, gpt: nn.Module, rows: int, length: int, seed: int
) -> None:
    x = tokens(rows, length, seed)
    assert close(f(x), gpt(x))


@pytest.mark.slow
@examples(40)
@given(rows=st.integers(1, 3), length=st.integers(1, 12), seed=st.integers(0, 1000))
def test_any_masked_call_is_the_modules(
    g: CompiledModule, bert: nn.Module, rows: int, length: int, seed: int
) -> None:
    x = masked(rows, length, seed)
    found, wanted = g(x), bert(**x)
    assert close(found.hidden, wanted.hidden)
    assert close(found.pooled, wanted.pooled)


@pytest.mark.slow
def test_the_check_takes_a_padded_call(f: CompiledModule, g: CompiledModule) -> None:
    assert f.check(tokens(2, 7)).matches
    assert g.check(masked(2, 7)).matches


@pytest.mark.slow
def test_padding_that_is_not_zero_is_found(
    g: CompiledModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted error: the mask is true at padding."""
    zeros = text_inputs.lengthened
    monkeypatch.setattr(text_inputs, "lengthened", lambda x, n: zeros(x, n).add(x[:1, :1] > 0))
    assert not g.check(masked(2, 7)).matches


@pytest.mark.slow
def test_outputs_can_be_viewed_and_stay(f: CompiledModule, gpt: nn.Module) -> None:
    found, other = f(tokens(3, 7)), f(tokens(3, 7, seed=1))
    assert close(found.view(-1, 50), gpt(tokens(3, 7)).view(-1, 50))
    assert close(other, gpt(tokens(3, 7, seed=1)))


@pytest.mark.slow
def test_out_takes_a_length_that_was_compiled_for(f: CompiledModule, gpt: nn.Module) -> None:
    out = torch.empty(3, 12, 50)
    assert f(tokens(3, 12), out=out) is out
    assert close(out, gpt(tokens(3, 12)))
    with pytest.raises(GolowError, match="batch 3 of length 11 is padded to batch 3 of length 12"):
        f(tokens(3, 11), out=torch.empty(3, 11, 50))


@pytest.mark.slow
def test_weights_are_loaded_for_all_sizes(gpt: nn.Module) -> None:
    f = compiled(gpt, tokens(2, 8), sequence=[4, 8])
    other = causal()
    nn.init.normal_(other.get_parameter("transformer.wpe.weight"))
    f.load_state_dict(other.state_dict())
    for length in (3, 7):
        assert close(f(tokens(2, length)), other(tokens(2, length)))


@pytest.mark.slow
def test_lengths_share_weights_and_the_memory_of_an_iteration(gpt: nn.Module) -> None:
    """But for products whose weights are stored otherwise for few rows."""
    alone = compiled(gpt, tokens(3, 12), sequence=12).memory()
    both = compiled(gpt, tokens(3, 12), sequence=[8, 12])
    assert both.memory()["weights"] <= 1.1 * alone["weights"]
    assert both.memory()["iteration"] == alone["iteration"]


@pytest.mark.slow
def test_a_plan_is_shown_for_each_size(f: CompiledModule) -> None:
    assert f.plan(1, 4) != f.plan(3, 4) != f.plan()
    assert f.plan() == f.plan(3, 12) == f.plan(sequence=12)


@pytest.mark.slow
def test_a_graph_is_kept_for_each_size(gpt: nn.Module, tmp_path: Path) -> None:
    for _ in range(2):
        found = compiled(gpt, tokens(2, 8), batch=[1, 2], sequence=[4, 8], cache=tmp_path)
        assert close(found(tokens(2, 7)), gpt(tokens(2, 7)))
    names = [file.stem.split("-")[1] for file in (tmp_path / "called" / "graphs").iterdir()]
    assert sorted(names) == ["1x4", "1x8", "2x4", "2x8"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda f, g: f(tokens(3, 30)),
            "input 0 is 3x30; this was compiled for batches of 1, 3 and lengths of 4, 12\n",
        ),
        (lambda f, g: f(tokens(4, 3)), "input 0 is 4x3; .* batches of 1, 3 and lengths of 4, 12"),
        (lambda f, g: f(tokens(3, 0)), "input 0 is 3x0"),
        (lambda f, g: f(tokens(1, 3)[0]), "input 0 is 3; "),
        (lambda f, g: f(torch.tensor(1)), "input 0 is one number"),
        (lambda f, g: f(tokens(2, 5).float()), "input 0 is float32; .* compiled for int64"),
        (
            lambda f, g: g(masked(2, 7) | {"mask": torch.ones(2, 6, dtype=torch.bool)}),
            "input mask is 2x6; this was compiled for batches of 1, 3 and lengths of 4, 12",
        ),
        (lambda f, g: f.plan(3, 5), "no plan for batch 3 of length 5"),
        (lambda f, g: f.plan(0), "no plan for batch 0 of length 12"),
    ],
)
def test_what_does_not_fit_is_named(
    f: CompiledModule,
    g: CompiledModule,
    call: Callable[[CompiledModule, CompiledModule], object],
    words: str,
) -> None:
    with pytest.raises(GolowError, match=words):
        call(f, g)


class Features(nn.Module):
    """Frames of sound with a vector for each text, and one vector for all: [b, L, 5], [b, 3] and
    [3]. The layers compute in a precision that the code names."""

    def __init__(self) -> None:
        super().__init__()
        self.frames, self.speaker = nn.Linear(5, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor, speaker: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.frames(x)
        hidden = hidden * torch.rsqrt(hidden.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        scale = torch.softmax(self.speaker(speaker), -1, dtype=torch.float32)
        return hidden * scale[:, None], scale + shift


@pytest.mark.slow
def test_inputs_without_the_length_stay() -> None:
    torch.manual_seed(0)
    module = Features().eval()
    x, speaker, shift = torch.randn(2, 6, 5), torch.randn(2, 3), torch.randn(3)
    f = compiled(module, (x, speaker, shift), batch=[1, 2], sequence=8)
    for length in (1, 6, 8):
        given = torch.randn(2, length, 5), speaker, shift
        for found, wanted in zip(f(*given), module(*given), strict=True):
            assert close(found, wanted)
    with pytest.raises(GolowError, match="batches of 1, 2 and lengths up to 8 of 5"):
        f(torch.randn(2, 9, 5), speaker, shift)
    with pytest.raises(GolowError, match=r"input 1 is 2x4; .* batches of 1, 2 of 3"):
        f(x, torch.randn(2, 4), shift)


@pytest.mark.slow
def test_without_batches_only_the_examples_fits() -> None:
    module = causal()
    f = compiled(module, tokens(2, 5), sequence=[6])
    assert close(f(tokens(2, 4)), module(tokens(2, 4)))
    with pytest.raises(GolowError, match=r"input 0 is 1x4; .* a batch of 2 and lengths up to 6"):
        f(tokens(1, 4))


@pytest.mark.slow
def test_without_the_proof_a_mean_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted error: nobody asks what padding does."""
    module = nn.Sequential(nn.Embedding(50, 6), Mean()).eval()
    monkeypatch.setattr(building, "require_harmless_padding", lambda module, inputs: [()])
    assert not compiled(module, tokens(2, 5), sequence=8).check(tokens(2, 5)).matches


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)
