"""The float64 reference of models that make float32 tensors in their forward pass, that hold
complex ones, or that keep a tensor which `Module.to` does not know."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from golow.levels import ladder
from golow.levels.torch.in_double import InDouble
from golow.levels.torch.placing import place
from golow.records.errors import GolowError
from golow.records.workload import Mode
from golow.worker.client import Worker
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request

X = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(3, 4).sin()
HEADS = torch.linspace(-3, 3, 64, dtype=torch.float64).cos().reshape(1, 2, 4, 8)
ARRAY = np.linspace(0, 1, 8, dtype=np.float32).reshape(4, 2)
EXPERTS = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(3, 4, 5)
ROWS = torch.tensor([1, 2, 3])

pytestmark = pytest.mark.usefixtures("forked")


class Masked(nn.Module):
    """Attention with a mask that the forward pass makes in float32, whatever the module's dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.projection(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        mask = torch.full((x.shape[1],) * 2, float("-inf"), dtype=torch.float32).triu(1)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return attended.transpose(1, 2).flatten(2)


class MaskedByHand(Masked):
    """The same, without PyTorch's function and with a mask in the dtype of the scores."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.projection(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / 8**0.5
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return (weights @ value).transpose(1, 2).flatten(2)


def reference(module: nn.Module, x: Tensor, mode: Mode, folder: Path) -> dict[str, Tensor]:
    """What the worker of the reference writes for the first batches."""
    prepared = prepare(
        Request(module, x, mode=mode, loss="mse_of_outputs" if mode == "train" else None)
    )
    bundle, _ = write_bundle(prepared, folder / "bundle")
    launch = ladder.choose(ladder.REFERENCE, mode, "cpu").prepare(bundle, folder)
    file = folder / "outputs"
    with Worker("reference", launch.command, threads=1, environment=launch.environment) as worker:
        worker.load(bundle.folder)
        worker.outputs([0, 1], 0.1, file)
    return load_file(file)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_mask_made_in_the_forward_pass_is_read_as_it_is(mode: Mode, tmp_path: Path) -> None:
    """PyTorch's attention would take every second number of a float32 mask for half a float64."""
    torch.manual_seed(0)
    masked, by_hand, x = Masked(), MaskedByHand(), torch.randn(2, 16, 32)
    by_hand.load_state_dict(masked.state_dict())
    found, wanted = (
        reference(module, x, mode, tmp_path / type(module).__name__) for module in (masked, by_hand)
    )
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-13)


Made = Callable[[], Tensor]
MADE: dict[str, tuple[Made, Made]] = {
    "cast": (X.float, X.clone),
    "cast by to": (lambda: X.to(torch.float32), X.clone),
    "cast by type": (lambda: X.type(torch.float32), X.clone),
    "softmax": (lambda: X.softmax(0, dtype=torch.float32), lambda: X.softmax(0)),
    "sum": (lambda: X.sum(0, dtype=torch.float32), lambda: X.sum(0)),
    "zeros like": (lambda: torch.zeros_like(X, dtype=torch.float32) + X, X.clone),
    "made and written": (lambda: torch.empty(3, 4).copy_(X), X.clone),
    "a row written": (lambda: torch.empty(4, 4).index_copy(0, ROWS, X.float())[1:], X.clone),
    "a constant": (lambda: torch.full((3,), 0.1), lambda: torch.full((3,), 0.1).double()),
    "numbers": (lambda: torch.tensor([0.1, 0.2]), lambda: torch.tensor([0.1, 0.2]).double()),
    "a quotient": (lambda: torch.arange(3) / 7, lambda: (torch.arange(3) / 7).double()),
    "an array's": (
        lambda: X @ torch.from_numpy(ARRAY),
        lambda: X @ torch.from_numpy(ARRAY).double(),
    ),
    "whole numbers": (lambda: ROWS.float() / X[:, 0], lambda: ROWS.double() / X[:, 0]),
    "half and back": (lambda: X.bfloat16().float() * X, lambda: X.bfloat16().double() * X),
    "complex": (lambda: torch.polar(X.float(), X).to(torch.complex64), lambda: torch.polar(X, X)),
    "the least number": (
        lambda: torch.full((3, 4), torch.finfo(X.dtype).min).maximum(X),
        lambda: X,
    ),
    "experts": (
        lambda: torch._grouped_mm(X.float(), EXPERTS, offs=torch.tensor([1, 1, 3]).int()),
        lambda: torch.cat([X[:1] @ EXPERTS[0], X[1:] @ EXPERTS[2]]),
    ),
    "weights": (
        lambda: functional.layer_norm(X, (4,), torch.ones(4), torch.zeros(4)),
        lambda: functional.layer_norm(X, (4,)),
    ),
    "flex attention": (
        lambda: flex_attention(HEADS.float(), HEADS, HEADS),
        lambda: functional.scaled_dot_product_attention(HEADS, HEADS, HEADS),
    ),
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("name", MADE)
def test_all_digits_stay(name: str, mode: Callable[[], AbstractContextManager[None]]) -> None:
    """In inference mode, in which the reference of inference runs, a cast is another operator."""
    made, exact = MADE[name]
    with mode(), InDouble():
        found = made()
    torch.testing.assert_close(found, exact(), rtol=1e-14, atol=1e-14)


def test_gradients_have_all_digits_too() -> None:
    given = X.clone().requires_grad_()
    with InDouble():
        (given.float().softmax(0, dtype=torch.float32) * torch.tensor(3.0) * X).sum().backward()
    again = X.clone().requires_grad_()
    (again.softmax(0) * 3 * X).sum().backward()
    torch.testing.assert_close(given.grad, again.grad, rtol=1e-14, atol=1e-14)


def test_gradients_of_experts_have_all_digits() -> None:
    rows, weight = X.clone().requires_grad_(), EXPERTS.clone().requires_grad_()
    with InDouble():
        found = torch._grouped_mm(rows, weight, offs=torch.tensor([1, 1, 3]).int())
        (found * found).sum().backward()
    again = X.clone().requires_grad_(), EXPERTS.clone().requires_grad_()
    exact = torch.cat([again[0][:1] @ again[1][0], again[0][1:] @ again[1][2]])
    (exact * exact).sum().backward()
    for mine, its in zip((rows, weight), again, strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-14, atol=1e-14)


def test_bits_stay_what_they_are_and_what_is_written_in_place_too() -> None:
    bits, kept = torch.tensor([0x3F800000], dtype=torch.int32), torch.zeros(3)
    with InDouble():
        assert bits.view(torch.float32).item() == 1.0
        kept.add_(X[:, 0])
        seen = torch.zeros(3) + kept
    assert kept.dtype == torch.float32
    assert seen.dtype == torch.float64
    torch.testing.assert_close(kept, X[:, 0].float())


# ---------------------------------------------------------------- complex numbers


class Turned(nn.Module):
    """Pairs of features turned by angles in a complex buffer, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(8, 8)
        self.register_buffer("turn", torch.polar(torch.ones(4), torch.arange(1.0, 5.0)))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(self.projection(x).unflatten(-1, (4, 2)))
        return torch.view_as_real(pairs * self.turn).flatten(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_complex_buffer_keeps_its_imaginary_part(dtype: torch.dtype) -> None:
    module, turn = Turned(), Turned().turn
    place(module, torch.device("cpu"), dtype, torch.channels_last)
    assert module.projection.weight.dtype == dtype
    assert module.turn.dtype == (torch.complex128 if dtype == torch.float64 else torch.complex64)
    torch.testing.assert_close(module.turn.to(torch.complex64), turn)


@pytest.mark.slow
def test_the_reference_turns_as_the_model_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Turned(), torch.randn(2, 8)
    found = reference(module, x, "train", tmp_path)["0/output/0"]
    torch.testing.assert_close(found.float(), module(x).detach(), rtol=1e-5, atol=1e-6)


class Positions(nn.Module):
    """A table that is no buffer, of which the forward pass reads a part."""

    def __init__(self) -> None:
        super().__init__()
        self.projection, self.table = nn.Linear(8, 8), torch.rand(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(x) * self.table[None, : x.shape[0]].squeeze(0)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_view_of_a_tensor_that_a_model_holds_is_read(mode: Mode, tmp_path: Path) -> None:
    """In inference mode PyTorch has no views of tensors that were converted within it."""
    torch.manual_seed(0)
    module, x = Positions(), torch.randn(2, 8)
    found = reference(module, x, mode, tmp_path)["0/output/0"]
    torch.testing.assert_close(found.float(), module(x).detach(), rtol=1e-5, atol=1e-6)


class Spectrum(nn.Module):
    """A filter in the frequencies; its outputs are real only if asked."""

    def __init__(self, back: bool) -> None:
        super().__init__()
        self.back, self.filter = back, nn.Parameter(torch.ones(5, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.fft.rfft(x) * self.filter
        return torch.fft.irfft(found, n=8) if self.back else found


def test_what_complex_numbers_golow_takes_is_said() -> None:
    x = torch.randn(2, 8)
    prepare(Request(Spectrum(back=True), x))
    with pytest.raises(GolowError, match="the output of Spectrum contains a complex tensor"):
        prepare(Request(Spectrum(back=False), x))
    with pytest.raises(GolowError, match="complex parameters, which golow does not train: filter"):
        prepare(Request(Spectrum(back=True), x, mode="train", loss="mse_of_outputs"))
    with pytest.raises(GolowError, match="contains a complex tensor"):
        prepare(Request(nn.Linear(8, 4), x.to(torch.complex64)))
