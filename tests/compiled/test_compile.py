"""`golow.compile`: a module's plan in the caller's process, called as the module."""

from __future__ import annotations

import copy
import gc
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, close, compiled
from support.examples import examples
from support.models.many_networks import CASES

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


@dataclass
class Answer:
    """What a model of several ends returns."""

    mean: Tensor
    parts: dict[str, tuple[Tensor, Tensor | None]]


class Several(nn.Module):
    """Inputs by name, one of them without a batch; outputs nested, one of them absent."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(4, 5)

    def forward(self, x: Tensor, y: Tensor, scale: Tensor) -> Answer:
        a, b = self.left(x), self.right(y)
        return Answer((a + b) * scale, {"parts": (torch.relu(a), None)})


@pytest.mark.parametrize("name", sorted(CASES)[::9])
def test_a_network_gives_what_the_module_gives(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    module, x = case.make().eval(), torch.randn(case.shape)
    f = compiled(module, x)
    assert f.check(x).matches
    assert f.check(x.flip(0) * 2).matches


def test_it_is_shown_in_words() -> None:
    f = compiled(nn.Linear(12, 3).eval(), X, batch=[1, 4])
    assert repr(f) == "<golow: Linear at onednn, batch 1, batch 4>"
    f.close()
    assert repr(f) == "<golow: Linear at onednn, closed>"


class WrongOutsideDouble(nn.Sequential):
    """A tenth too large, but right in float64 and where it is captured."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)
        right = x.dtype is torch.float64 or torch.compiler.is_compiling()
        return y if right else 1.1 * y


def test_the_check_does_not_believe_a_wrong_eager() -> None:
    torch.manual_seed(0)
    module, x = WrongOutsideDouble(nn.Linear(6, 40), nn.ReLU()).eval(), torch.randn(3, 6)
    found = compiled(module, x).check(x)
    assert found.matches, found
    assert repr(found) == str(found)  # a table, also at a prompt
    [item] = found.check.tensors
    assert item.limit < 1e-4 * item.scale < item.eager_error


class Adds(nn.Linear):
    """Rows added to a tensor that its code makes in float32."""

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.zeros(4, 5).index_add(0, torch.tensor([0, 2, 2]), super().forward(x).float())
        return rows.sin()


def test_the_check_also_computes_in_double_what_the_code_makes_in_float32() -> None:
    module, x = Adds(6, 5).eval(), torch.randn(3, 6)
    found = compiled(module, x).check(x)
    assert found.matches, found
    exact = copy.deepcopy(module).double()
    rows = nn.Linear.forward(exact, x.double())
    wanted = torch.stack([rows[0], rows[0] * 0, rows[1] + rows[2], rows[0] * 0]).sin()
    assert (found.exact[0] - wanted).abs().max() < 1e-14


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_a_batch_between_two_sizes_is_padded(
    f: CompiledModule, module: nn.Module, rows: int
) -> None:
    x = torch.randn(rows, 3, 12, 12)
    assert close(f(x), module(x))
    assert f.check(x).matches


def test_names_positions_and_nested_outputs() -> None:
    module = Several().eval()
    x, y, scale = torch.randn(3, 6), torch.randn(3, 4), torch.tensor(2.0)
    wanted = module(x, y, scale)
    by_name = compiled(module, {"y": y, "x": x, "scale": scale}, batch=[3, 5])
    in_order = compiled(module, (x, y, scale))
    answers = [
        by_name(x=x, y=y, scale=scale),
        by_name({"x": x, "y": y, "scale": scale}),
        by_name(x, y, scale=scale),
        in_order(x, y, scale),
        in_order(x, scale=scale, y=y),
    ]
    for found in answers:
        assert isinstance(found, Answer)
        assert close(found.mean, wanted.mean)
        assert close(found.parts["parts"][0], wanted.parts["parts"][0])
        assert found.parts["parts"][1] is None
    assert type(module) is Several  # it was not changed
    assert by_name(x[:2], y[:2], scale=scale).mean.shape == (2, 5)


def test_tensors_of_any_origin_and_order_are_read(f: CompiledModule, module: nn.Module) -> None:
    wanted = module(X)
    assert close(f(X.numpy()), wanted)
    assert close(f(X.contiguous(memory_format=torch.channels_last)), wanted)
    assert close(f(X.clone().requires_grad_().detach()), wanted)
    inside = torch.zeros(4, 3, 12, 13)[..., 1:].copy_(X)
    assert close(f(inside), wanted)
    odd = torch.empty(X.numel() + 1)[1:].view(X.shape).copy_(X)  # 4 bytes behind a cache line
    assert close(f(odd), wanted)
    still = X.numpy().copy()
    still.flags.writeable = False
    assert close(f(still), wanted)
    turned = X.numpy()[:, ::-1]  # as images in the other order of colours
    assert close(f(turned), module(X.flip(1)))
    assert close(f(X.numpy().astype(">f4")), wanted)
    negative = torch._neg_view(-X)  # its memory has the other sign
    assert negative.is_neg()
    assert negative.is_contiguous()
    assert close(f(negative), wanted)


def test_outputs_are_the_callers_and_stay(f: CompiledModule, module: nn.Module) -> None:
    """A call that gave its own memory would change an old answer."""
    one, other = f(X), f(X * 2)
    assert close(one, module(X))
    assert close(other, module(X * 2))
    kept = [f(torch.full((2, 3, 12, 12), float(k))) for k in range(5)]
    gc.collect()
    for k, found in enumerate(kept):
        assert close(found, module(torch.full((2, 3, 12, 12), float(k))))


class Summing(nn.Module):
    """A step of NumPy's reads the input."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 1)


def test_other_content_at_the_same_address_is_read() -> None:
    x, out = torch.randn(3, 5), torch.empty(3, 5)
    f = compiled(Summing().eval(), x)
    for _ in range(3):
        assert close(f(x, out=out), torch.cumsum(x, 1))
        x.copy_(torch.randn(3, 5))


def test_out_takes_the_output(f: CompiledModule, module: nn.Module) -> None:
    out = torch.empty(4, 5)
    assert f(X, out=out) is out
    assert close(out, module(X))
    with pytest.raises(GolowError, match=r"output 0 of out must be .* 4x5 of float32"):
        f(X, out=torch.empty(5, 4).T)
    with pytest.raises(GolowError, match="does not have the structure"):
        f(X, out=(out,))
    with pytest.raises(GolowError, match="batch 3 is padded to batch 4"):
        f(X[:3], out=torch.empty(3, 5))


@examples(60)
@given(
    rows=st.integers(1, 4),
    channels_last=st.booleans(),
    start=st.integers(0, 3),
    scale=st.floats(-4, 4, allow_nan=False),
)
def test_any_call_is_the_modules(
    f: CompiledModule,
    module: nn.Module,
    rows: int,
    channels_last: bool,
    start: int,
    scale: float,
) -> None:
    whole = torch.randn(start + rows, 3, 12, 12, generator=torch.Generator().manual_seed(start))
    x = whole[start:] * scale
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    assert close(f(x), module(x))
