"""Modules in which padding behind a text would reach its tokens: each is refused, and named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.called import in_double
from golow.levels.called.in_double import InDouble
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import compiled
from support.direct.texts import bidirectional, tokens

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

WIDTH = 6


class Text(nn.Module):
    """An embedding, and a function of it."""

    def __init__(self, body: Callable[[Tensor], Tensor] | nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, WIDTH)
        self.body = body
        self.eval()

    def forward(self, words: Tensor) -> Tensor:
        return self.body(self.table(words))


class Unmasked(nn.Module):
    """A BERT without a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = bidirectional()
        self.eval()

    def forward(self, words: Tensor) -> Tensor:
        mask = torch.ones_like(words, dtype=torch.bool)
        hidden: Tensor = self.bert(words, mask, torch.zeros_like(words)).hidden
        return hidden


class Masked(nn.Module):
    """Attention with scores that a mask changes; what(mask) is added to them."""

    def __init__(self, what: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.what, self.table = what, nn.Embedding(50, WIDTH)
        self.eval()

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        x = self.table(words)
        scores = x @ x.transpose(1, 2) + self.what(mask)[:, None, :]
        return torch.softmax(scores, -1) @ x


def recurrent(two_ways: bool) -> nn.Module:
    return Text(First(nn.GRU(WIDTH, 5, batch_first=True, bidirectional=two_ways)))


class First(nn.Module):
    """The first output of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)[0]
        return found


class Convolved(nn.Module):
    """Two convolutions over the text: the second one reads what the first one made of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv1d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.transpose(1, 2))).transpose(1, 2)


MIXING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "attention": (Unmasked, ": bert.encoder.layer.0.attention.self mixes it into tokens"),
    "mean": (lambda: Text(lambda x: x.mean(1)), r"output 0 depends on padding behind the text\n"),
    "largest": (lambda: Text(lambda x: x.amax(1)), "output 0 depends on padding"),
    "last token": (lambda: Text(lambda x: x[:, -1]), "output 0 depends on padding"),
    "recurrence": (lambda: recurrent(True), ": body.layer mixes it into tokens"),
    "convolution": (lambda: Text(Convolved()), ": body.first mixes it into tokens"),
    "length": (lambda: Text(lambda x: x / x.shape[1]), "output 0 depends on padding"),
    "shorter": (lambda: Text(lambda x: x[:, 1:]), "output 0 is 2x0x6 for a length of 1 and 2x7x6"),
    "flat": (lambda: Text(lambda x: x.flatten(0, 1)), "output 0 is 2x6 for .* 1 and 16x6 for 8"),
    "some": (lambda: Text(lambda x: x[:, :4]), "output 0 is 2x1x6 for .* 1 and 2x4x6 for 8"),
    "fixed": (lambda: Text(Mixed()), "does not run on a length of 4: RuntimeError"),
}


class Mixed(nn.Module):
    """A linear layer over the length, which is 5."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(1, 2))


@pytest.mark.parametrize("name", MIXING)
def test_modules_that_mix_padding_into_tokens_are_refused(name: str) -> None:
    make, words = MIXING[name]
    with pytest.raises(GolowError, match=words):
        compiled(make(), tokens(2, 5), sequence=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [lambda: recurrent(False), lambda: Text(lambda x: x.cumsum(1)), lambda: Text(nn.GELU())],
)
def test_modules_whose_tokens_read_none_behind_them_are_taken(
    make: Callable[[], nn.Module],
) -> None:
    module, words = make(), tokens(2, 7)
    f = compiled(module, tokens(2, 5), sequence=8)
    assert torch.allclose(f(words), module(words), atol=1e-5)


@pytest.mark.parametrize(
    ("what", "padded"),
    [
        (lambda mask: torch.log(mask.float()), True),
        (lambda mask: (1 - mask.float()) * torch.finfo(torch.float32).min, True),
        (lambda mask: (1 - mask.float()) * -10, False),  # e^-10 of padding remains
        (lambda mask: torch.log(1 - mask.float()), False),  # true hides a token
    ],
)
def test_a_mask_must_hide_padding_wholly(what: Callable[[Tensor], Tensor], padded: bool) -> None:
    module, words = Masked(what), tokens(2, 5)
    mask = torch.ones(2, 5, dtype=torch.bool)
    if padded:
        found = compiled(module, (words, mask), sequence=8)(words, mask)
        assert torch.allclose(found, module(words, mask), atol=1e-5)
        return
    hidden = torch.zeros_like(mask) if what(mask).isinf().any() else mask
    with pytest.raises(GolowError, match="output 0 depends on padding") as raised:
        compiled(module, (words, hidden), sequence=8)
    assert "an input that masks padding" in raised.value.hint


def test_the_trial_is_in_float64_also_where_the_code_names_another_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that, its roundings would hide small leaks."""
    seen: list[torch.dtype] = []

    def body(x: Tensor) -> Tensor:
        seen.append(functional.softmax(x.half().to(torch.float32), -1, dtype=torch.float32).dtype)
        return x * torch.ones(1)

    assert InDouble(Text(body))((tokens(2, 5),)).dtype == torch.float64
    monkeypatch.setattr(in_double, "_Doubled", nullcontext)
    InDouble(Text(body))((tokens(2, 5),))
    assert seen == [torch.float64, torch.float32]
    assert torch.get_default_dtype() == torch.float32


def test_an_axis_that_is_cut_for_some_lengths_alone_is_refused() -> None:
    with pytest.raises(GolowError, match="output 0 has the length only for some lengths"):
        compiled(Text(lambda x: x[:, :8]), tokens(2, 5), sequence=[8, 16])


def test_a_length_of_one_needs_no_proof() -> None:
    module = Text(lambda x: x.mean(1))
    assert torch.allclose(
        compiled(module, tokens(2, 5), sequence=1)(tokens(2, 1)), module(tokens(2, 1)), atol=1e-5
    )


@pytest.mark.parametrize(
    ("inputs", "sequence", "words"),
    [
        (torch.zeros(2, 5, dtype=torch.int64), 8, "all tokens of the example are equal"),
        (torch.tensor([1, 2]), 8, "no input has a second axis"),
        (tokens(2, 5), 0, "a length of 0 has no token"),
        (tokens(2, 5), [], "there is no length to compile for"),
        (tokens(2, 5)[:, :0], 8, "the example has a length of 0"),
    ],
)
def test_examples_and_lengths_that_show_nothing_are_refused(
    inputs: Tensor, sequence: int | list[int], words: str
) -> None:
    with pytest.raises(GolowError, match=words):
        compiled(Text(nn.GELU()), inputs, sequence=sequence)


def test_what_changes_between_two_lengths_is_refused() -> None:
    """As a rotation whose base depends on how long the text is."""
    scaled = Text(lambda x: x * (1.0 if x.shape[1] <= 10 else 2.0))
    with pytest.raises(GolowError, match="depends on padding"):
        compiled(scaled, tokens(2, 16), batch=[1, 2], sequence=[8, 16])
