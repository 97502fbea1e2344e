"""Complex numbers as pairs of real ones: what networks compute with them, and what they hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import golow
from golow.levels.direct.bundle_arrays import in_pairs
from golow.lower.aten.complex_definitions import FROM_PARTS, TO_PAIRS
from golow.lower.aten.complex_numbers import pair_complex_numbers
from golow.lower.aten.scalar_constants import inline_numbers
from golow.lower.fuse.epilogue_fusion import drop_conversions
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.to_vocabulary import CANONICAL
from golow.records.workload import Mode
from support.graphs.lowering import Case, assert_close
from support.models.reported_modules import Calls

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


class Rotary(nn.Module):
    """Heads turned by angles as complex numbers, as in Llama's own code; the angles are a buffer,
    or an attribute."""

    def __init__(self, kept: bool = True) -> None:
        super().__init__()
        self.query = nn.Linear(32, 64)
        angles = torch.outer(torch.arange(6.0), 100 ** -(torch.arange(8.0) / 8))
        turns = torch.polar(torch.ones(6, 8), angles)
        if kept:
            self.register_buffer("turns", turns)
        else:
            self.turns = turns

    def forward(self, x: Tensor) -> Tensor:
        heads = self.query(x).view(x.shape[0], 6, 4, 16)
        pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
        turned = torch.view_as_real(pairs * self.turns[None, :, None, :]).flatten(3)
        return (turned.transpose(1, 2) @ turned.permute(0, 2, 3, 1)).flatten(1)


@pytest.mark.slow
@both_modes
@pytest.mark.parametrize("kept", [True, False])
def test_a_rotary_embedding_of_complex_numbers_is_lowered(kept: bool, mode: Mode) -> None:
    torch.manual_seed(0)
    case = Case(Rotary(kept), torch.randn(2, 6, 32), mode=mode)
    graph = pair_complex_numbers(case.graph)
    assert not any(value.dtype == "complex64" for value in graph.values().values())
    for lowered in (case.lowered("onednn"), case.lowered("cudnn")):
        assert not any("complex" in node.op for node in lowered.nodes)


@pytest.mark.slow
@pytest.mark.whole_network
@pytest.mark.usefixtures("forked")
def test_it_matches_at_onednn() -> None:
    """Where a step reads what the forward pass keeps, and a complex buffer."""
    torch.manual_seed(0)
    result = golow.compare(
        Rotary(), torch.randn(2, 6, 32), mode="train", levels=["eager", "onednn"],
        loss="mse_of_outputs", time_limit=0.1, brief=True,
    )  # fmt: skip
    assert [run.check.verdict for run in result.comparison.runs] == ["match", "match"]


Function = Callable[[Tensor, Tensor], Tensor]


def twice_at_the_end(x: Tensor) -> Tensor:
    x[:, 1:] *= 2
    return x


FUNCTIONS: dict[str, Function] = {
    "product": lambda a, b: torch.view_as_real(a * b),
    "with a number": lambda a, b: torch.view_as_real(a * 2.5 + b),
    "with real numbers": lambda a, b: torch.view_as_real(a * b.real),
    "from the left": lambda a, b: torch.view_as_real(b.imag * a),
    "sum": lambda a, b: torch.view_as_real(a + b - a * b),
    "sum with a number": lambda a, b: torch.view_as_real((a + 2.5) * (1.5 - b)),
    "sum with real numbers": lambda a, b: torch.view_as_real((a.real[:1] - b) + a.imag),
    "with complex numbers": lambda a, b: torch.view_as_real((a * 1j + (0.5 - 2j)) * b),
    "quotient": lambda a, b: torch.view_as_real(a / (b + 3)),
    "quotient of a number": lambda a, b: torch.view_as_real(2 / (b + 3) + a / 2),
    "quotient by real numbers": lambda a, b: torch.view_as_real(a / (1 + b.abs())),
    "sign": lambda a, b: torch.view_as_real(torch.sgn(a) + torch.sgn(b * 0)),
    "conjugate": lambda a, b: torch.view_as_real(a.conj() * b),
    "negative": lambda a, b: torch.view_as_real(-a * b),
    "parts": lambda a, b: torch.cat(((a * b).real, (a * b).imag), -1),
    "size": lambda a, b: (a * b).abs(),
    "angle": lambda a, b: (a * b).angle(),
    "chosen": lambda a, b: torch.view_as_real(torch.where(a * 0 == 0, a, b) * b),
    "polar": lambda a, b: torch.view_as_real(torch.polar(a.real, b.real) * b),
    "of parts": lambda a, b: torch.view_as_real(torch.complex(a.imag, b.real) * b),
    "other order": lambda a, b: torch.view_as_real(a.transpose(-1, 1) * b.permute(0, 2, 1)),
    "shapes": lambda a, b: torch.view_as_real((a * b).reshape(2, -1)[:, None].expand(2, 3, 12)),
    "ranges": lambda a, b: torch.view_as_real(a[:, 1:, ::2] * b[:, -1:, :2]),
    "axes of one element left out": lambda a, b: torch.view_as_real(
        a[:1, :, :1].squeeze((0, 2)) * b[:1, :, :1].squeeze(0).squeeze(1) + a[:1, :1, :1].squeeze()
    ),
    "one of them": lambda a, b: torch.view_as_real(a[:, -1] * b.select(1, 0)),
    "exponential": lambda a, b: torch.view_as_real(torch.exp(a) * b),
    "matrices": lambda a, b: torch.view_as_real(a @ b.mT),
    "matrices in letters": lambda a, b: torch.view_as_real(torch.einsum("bij,bkj->bik", a, b)),
    "sums": lambda a, b: torch.view_as_real((a * b).sum(-1) + a.mean(2) + b.sum()),
    "joined": lambda a, b: torch.view_as_real(torch.cat([a, b * a], -1)),
    "padded": lambda a, b: torch.view_as_real(functional.pad(a, (1, 2, 0, 1))),
    "changed in place": lambda a, b: torch.view_as_real((a * b).mul_(b).add_(a)),
    "a part changed": lambda a, b: torch.view_as_real(twice_at_the_end(a * b) * b),
    "moved": lambda a, b: torch.view_as_real(torch.roll(a, 1, -1) * b.flip(1)),
}
TRANSFORMS: dict[str, Function] = {
    "fft": lambda a, b: torch.view_as_real(torch.fft.fft(a)),
    "ifft": lambda a, b: torch.view_as_real(torch.fft.ifft(a, dim=1)),
    "of real numbers": lambda a, b: torch.view_as_real(torch.fft.fft(a.real, norm="ortho")),
    "rfft": lambda a, b: torch.view_as_real(torch.fft.rfft(b.real, dim=-2)),
    "irfft": lambda a, b: torch.fft.irfft(a, norm="forward"),
    "irfft of an odd length": lambda a, b: torch.fft.irfft(a, n=7, norm="ortho"),
    "irfft of fewer frequencies": lambda a, b: torch.fft.irfft(a, n=4, dim=1),
    "padded": lambda a, b: torch.view_as_real(torch.fft.rfft(a.real, n=9) * 0.5),
    "two axes": lambda a, b: torch.view_as_real(torch.fft.fft2(a)),
    "two axes of real numbers": lambda a, b: torch.view_as_real(
        torch.fft.rfft2(a.real, dim=(2, 1))
    ),
    "two axes, back": lambda a, b: torch.fft.irfft2(a * b, s=(3, 6), norm="ortho"),
    "all axes of real numbers": lambda a, b: torch.fft.fftn(a.real, dim=(0, 1)).real,
    "converted": lambda a, b: torch.view_as_real(a.real.to(torch.complex64) * b),
    "all axes": lambda a, b: torch.view_as_real(torch.fft.fftn(a, norm="ortho")),
    "shifted": lambda a, b: torch.view_as_real(torch.fft.fftshift(torch.fft.fft(a))),
    "a convolution": lambda a, b: torch.fft.irfft(
        torch.fft.rfft(a.real) * torch.fft.rfft(b.real), 4
    ),
}


def hann(like: Tensor) -> Tensor:
    return torch.hann_window(8, dtype=like.dtype)


SHORT: dict[str, Function] = {
    "of windows": lambda a, b: torch.stft(b, 8, 2, window=hann(b), return_complex=True).abs(),
    "of windows at the edges": lambda a, b: torch.view_as_real(
        torch.stft(b, 9, 3, 6, center=False, normalized=True, onesided=False, return_complex=True)
    ),
    "back": lambda a, b: torch.istft(a, 8, 2, window=hann(a.real)),
    "back to a length": lambda a, b: torch.istft(a, 8, 3, 6, normalized=True, length=30),
    "of one signal": lambda a, b: a[0].istft(8, 2, center=False)[None],
}


class Spectra(nn.Module):
    """Signals whose spectra have other sizes and angles, as in vocoders and denoisers."""

    def __init__(self) -> None:
        super().__init__()
        self.change = nn.Conv1d(9, 9, 1)
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: Tensor) -> Tensor:
        spectra = torch.stft(x, 16, 4, window=self.window, return_complex=True)
        changed = torch.polar(self.change(spectra.abs()), self.change(spectra.angle()))
        return torch.istft(changed, 16, 4, window=self.window)


class Complex(nn.Module):
    """A function of two complex numbers of the parts of x."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.rand(1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = (torch.view_as_complex(part.contiguous()) for part in x.unbind(1))
        found = self.function(a, b)
        return found.flatten(1) * self.weight


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_complex_numbers_are_right(name: str) -> None:
    torch.manual_seed(0)
    case = Case(Complex(FUNCTIONS[name]), torch.randn(2, 2, 3, 4, 2))
    graph = pair_complex_numbers(case.graph)
    assert graph is not case.graph
    assert not any(value.dtype == "complex64" for value in graph.values().values())
    assert_close(case.run(graph), case.run(case.graph), name)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_fourier_transforms_are_products(name: str) -> None:
    torch.manual_seed(0)
    case = Case(Complex(TRANSFORMS[name]), torch.randn(2, 2, 3, 4, 2))
    graph = pair_complex_numbers(case.graph)
    assert not any("fft" in node.op for node in graph.nodes)
    assert_close(case.run(graph), case.run(case.graph), name)


class Short(nn.Module):
    """A function of spectra [2, 5, 11], and of signals [2, 40]."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        spectra = torch.view_as_complex(x[:, :110].reshape(2, 5, 11, 2))
        return self.function(spectra, x[:, 110:]).flatten(1)


@pytest.mark.parametrize("name", SHORT)
def test_transforms_of_windows_are_products(name: str) -> None:
    torch.manual_seed(0)
    module, x = Short(SHORT[name]), torch.randn(2, 150)
    case = Case(module, x)
    graph = pair_complex_numbers(case.graph)
    assert not any(value.dtype == "complex64" for value in graph.values().values())
    assert_close(case.run(graph), {"output/0": module(x.double()).double()}, name)


@pytest.mark.slow
@both_modes
def test_spectra_that_a_network_changes_are_lowered(mode: Mode) -> None:
    torch.manual_seed(0)
    case = Case(Spectra(), torch.randn(2, 64), mode=mode)
    graph = pair_complex_numbers(case.graph)
    assert not any(value.dtype == "complex64" for value in graph.values().values())
    for level in ("onednn", "cudnn"):
        assert not any(node.op.startswith("aten.") for node in case.lowered(level).nodes)


def test_a_complex_number_that_stays_is_refused_by_its_name() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        none = torch.zeros((), dtype=torch.complex64)
        return torch.where(a.real > 0, none, a**b).real

    case = Case(Complex(function), torch.randn(2, 2, 3, 4, 2))
    lowered = apply(case.graph, case.direct_passes()["onednn"])
    assert any(value.dtype == "complex64" for value in lowered.values().values())


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.sampled_from(["backward", "ortho", "forward"]))
def test_a_transform_of_any_length_is_right(points: int, norm: str) -> None:
    def there_and_back(a: Tensor, b: Tensor) -> Tensor:
        found = torch.fft.rfft(a.real, n=points, norm=norm)
        return torch.fft.irfft(found * (1 + 2j), n=points, norm=norm)

    case = Case(Complex(there_and_back), torch.randn(2, 2, 3, points, 2))
    graph = pair_complex_numbers(case.graph)
    assert_close(case.run(graph), case.run(case.graph), "a transform")


def on_complex_numbers(graph: Graph) -> list[str]:
    """The operations on complex numbers that are left, without the conversions around them."""
    values = graph.values()
    left = []
    for node in graph.nodes:
        names = (*node.references(), *(v.name for v in node.outputs if v is not None))
        if any(values[name].dtype == "complex64" for name in names):
            left.append(node.op)
    return [op for op in left if op not in (FROM_PARTS, TO_PAIRS)]


UNKNOWN: dict[str, tuple[Function, str]] = {
    "a power": (lambda a, b: torch.view_as_real(a * (a + b) ** b * a.conj()), "pow.Tensor_Tensor"),
    "one in place": (lambda a, b: torch.view_as_real((a * b).log_() * b), "log.default"),
    "several results": (
        lambda a, b: torch.view_as_real(torch.linalg.qr(a * b)[0] * 2), "linalg_qr.default"
    ),
    "a long transform": (
        lambda a, b: torch.fft.fft(a, n=4096).real[..., :4] * b.imag, "_fft_c2c.default"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_only_what_is_not_known_stays(name: str) -> None:
    torch.manual_seed(0)
    function, op = UNKNOWN[name]
    case = Case(Complex(function), torch.randn(2, 2, 3, 4, 2))
    graph = pair_complex_numbers(case.graph)
    assert on_complex_numbers(graph) == [f"aten.{op}"]
    assert_close(case.run(graph), case.run(case.graph), name)


def test_arrays_are_read_as_pairs() -> None:
    array = np.array([[1 + 2j, 3 - 1j]], np.complex64)
    np.testing.assert_array_equal(in_pairs(array), [[[1, 2], [3, -1]]])
    real = np.ones((2, 2), np.float32)
    assert in_pairs(real) is real


def test_a_complex_number_beside_an_unknown_operation_stays() -> None:
    """So that a level can refuse the operation."""
    module = Calls(lambda x: (torch.fft.rfft(x).cumsum(-1) * torch.tensor(2j)).abs(), 8)
    case = Case(module, torch.randn(2, 8), mode="train")
    graph = apply(case.graph, (*CANONICAL, inline_numbers, drop_conversions))
    assert any(value.dtype == "complex64" for value in graph.values().values())
