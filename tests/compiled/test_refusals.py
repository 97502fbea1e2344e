"""Calls that do not fit, and modules that cannot be compiled: each is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import golow
from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, close, compiled, network

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: f(torch.randn(8, 3, 12, 12)), "input 0 is 8x3x12x12; .* 1, 2, 4 of 3x12x12"),
        (lambda f: f(torch.randn(4, 3, 12, 11)), "input 0 is 4x3x12x11; .* 1, 2, 4 of 3x12x12"),
        (lambda f: f(torch.randn(0, 3, 12, 12)), "input 0 is 0x3x12x12"),
        (lambda f: f(torch.tensor(1.0)), "input 0 is one number"),
        (lambda f: f(X.double()), "input 0 is float64; this was compiled for float32"),
        (lambda f: f(X.numpy().astype(np.float16)), "input 0 is float16"),
        (lambda f: f(X.clone().requires_grad_()), "requires a gradient"),
        (lambda f: f(X.to("meta")), "input 0 is on meta; this was compiled for the CPU"),
        (lambda f: f(X.to_sparse()), "input 0 is a sparse tensor"),
        (
            lambda f: f(X.numpy().astype(np.longdouble)),
            "input 0 is an array that PyTorch cannot read",
        ),
        (lambda f: f("picture"), "input 0 is str, not a tensor"),
        (lambda f: f([X]), "input 0 is list, not a tensor(?s:.*)forward.self, .tensors., which"),
        (lambda f: f(), "input input is missing"),
        (lambda f: f(X, X), "2 inputs are too many; this was compiled for input"),
        (lambda f: f(images=X), "images is not an input; this was compiled for input"),
        (lambda f: f.plan(3), "no plan for batch 3"),
    ],
)
def test_what_does_not_fit_is_named(
    f: CompiledModule, call: Callable[[CompiledModule], object], words: str
) -> None:
    with pytest.raises(GolowError, match=words):
        call(f)
    assert f(X).shape == (4, 5)


def test_without_sizes_only_the_examples_batch_fits(module: nn.Module) -> None:
    with (
        compiled(module, X) as f,
        pytest.raises(GolowError, match=r"input 0 is 2x3x12x12; .* a batch of 4 of 3x12x12"),
    ):
        f(X[:2])
    with pytest.raises(GolowError, match="closed"):
        f(X)
    with pytest.raises(GolowError, match="closed"):
        f.context()


class Lacking(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.lgamma(x)


def test_a_missing_operation_is_named_once_with_a_line_of_python() -> None:
    with pytest.raises(GolowError) as caught:
        golow.compile(Lacking().eval(), X, level="onednn", quiet=True)
    said, hint = str(caught.value).splitlines()
    assert said.startswith("onednn cannot run it: aten.lgamma.default is not implemented (node ")
    assert "golow.support(module, inputs)" in hint
    assert "golow levels --support MODEL" in caught.value.hint


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


def test_a_module_that_draws_is_told_what_to_do() -> None:
    with pytest.raises(GolowError, match=r"it draws random numbers.*randn_like") as caught:
        golow.compile(Noisy().eval(), X, quiet=True)
    assert 'level="eager" draws them itself' in caught.value.hint


def test_a_module_that_torch_ao_quantised_is_told_what_to_do() -> None:
    layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 4)).eval()
    quantised = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear})
    with pytest.raises(GolowError, match=r"capture Sequential: torch\.ao has quantised") as caught:
        golow.compile(quantised.eval(), X, quiet=True)
    assert 'precision="int8"' in caught.value.hint


def test_the_names_of_the_forward_pass_are_in_the_hint(module: nn.Module) -> None:
    for example in ({"picture": X}, (X, X)):
        with pytest.raises(GolowError, match=r"as its forward\(input\) takes them"):
            golow.compile(module, example, quiet=True)


def test_an_example_without_samples_is_refused(module: nn.Module) -> None:
    with pytest.raises(GolowError, match="the example has no samples: input 0 is 0x3x12x12"):
        golow.compile(module, X[:0], quiet=True)


def test_a_sparse_example_is_refused(module: nn.Module) -> None:
    with pytest.raises(GolowError, match=r"input 0 is a sparse tensor\n.*to_dense"):
        golow.compile(module, X.to_sparse(), quiet=True)


class MixesSamples(nn.Module):
    """Its norm takes the statistics of the batch, also in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.first(x))


class Centred(nn.Module):
    """Code between layers subtracts the mean of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return y - y.mean(0)


class Summed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x).sum()


def test_states_whose_batch_is_the_second_axis_have_no_padding() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(6, 5, 2, batch_first=True)

        def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            found: tuple[Tensor, tuple[Tensor, Tensor]] = self.layer(x)
            return found

    x = torch.randn(3, 7, 6)
    with pytest.raises(GolowError, match="output 1 has no batch in its first axis"):
        compiled(Recurrent().eval(), x, batch=[1, 3])
    assert compiled(Recurrent().eval(), x).check(x).matches


def test_one_size_may_be_a_number_and_threads_are_at_least_one(module: nn.Module) -> None:
    f = compiled(module, X, batch=2)
    assert close(f(X[:1]), module(X[:1]))
    with pytest.raises(GolowError, match="0 threads compute nothing"):
        golow.compile(module, X, threads=0, quiet=True)


class MixesTokens(nn.Module):
    """Its input are indices."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.table(tokens)
        return found - found.mean(0)


@pytest.mark.parametrize("tokens", [[[1, 2, 3]], [[2, 2, 2]], [[1], [1]]])
def test_samples_of_indices_that_mix_are_seen(tokens: list[list[int]]) -> None:
    with pytest.raises(GolowError, match="depends on the other samples"):
        compiled(MixesTokens().eval(), torch.tensor(tokens), batch=[1, 2])


class Tables(nn.Module):
    """A category each of a table of its own size, as in recommendation: their order is no other
    sample. mixes: whether samples affect one another."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 4) for rows in (3, 100))
        self.mixes = mixes

    def forward(self, categories: Tensor) -> Tensor:
        found = [table(categories[:, k]) for k, table in enumerate(self.tables)]
        y = torch.cat(found, 1)
        return y - y.mean(0) if self.mixes else y


def test_an_index_is_not_tried_in_another_table() -> None:
    categories = torch.tensor([[2, 99], [1, 50], [0, 0]])
    module = Tables(mixes=False).eval()
    f = compiled(module, categories, batch=[1, 4])
    assert close(f(categories), module(categories))
    with pytest.raises(GolowError, match="depends on the other samples"):
        compiled(Tables(mixes=True).eval(), categories, batch=[1, 4])


def test_a_module_that_mixes_samples_has_no_padding_and_is_right_without() -> None:
    x = torch.randn(4, 6)
    with pytest.raises(GolowError, match=r"output 0 of a sample depends .* norm mixes them"):
        compiled(MixesSamples().eval(), x, batch=[1, 4])
    with pytest.raises(GolowError, match="depends on the other samples of its batch; rows"):
        compiled(Centred().eval(), x, batch=[1, 4])
    with pytest.raises(GolowError, match="output 0 has no batch in its first axis"):
        compiled(Summed().eval(), x, batch=[1, 4])
    for module in (MixesSamples().eval(), Centred().eval(), Summed().eval()):
        assert compiled(module, x).check(x).matches


def in_training() -> nn.Module:
    module = network()
    module[1].train()
    return module


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda: network().train(), {}, "the module is in training mode"),
        (in_training, {}, "1 is in training mode"),
        (network, {"precision": "bf16"}, "float32, not in bf16"),
        (network, {"level": "eagre"}, "no level 'eagre'"),
        (network, {"batch": [0, 1]}, "a batch of 0"),
        (lambda: nn.Linear(5, 3).eval(), {}, "does not run on the example: RuntimeError: mat1"),
        (lambda: network().forward, {}, "the model is method, not a torch.nn.Module"),
        (lambda: "resnet50", {}, "the model is str"),
    ],
)
def test_what_cannot_be_compiled_is_refused(
    make: Callable[[], nn.Module], options: dict[str, object], words: str
) -> None:
    with pytest.raises(GolowError, match=words):
        compiled(make(), X, **options)


class Gamma(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        return torch.lgamma(self.body(x))


def test_an_operation_that_the_level_lacks_is_named_before_anything_is_built() -> None:
    with pytest.raises(GolowError, match="lgamma") as raised:
        compiled(Gamma().eval(), torch.randn(2, 6))
    assert "--support" in raised.value.hint


class Counting(nn.Module):
    """Depends on how many samples there are."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if self.kind == "times":
            return y * x.shape[0]
        if self.kind == "few":
            return y if x.shape[0] <= 2 else y + 1
        return y + x.roll(2, 0)


@pytest.mark.parametrize("kind", ["times", "few", "rolled"])
def test_what_depends_on_the_number_of_samples_is_not_padded(kind: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(GolowError, match=r"output 0 .* samples changes when they are padded"):
        compiled(Counting(kind).eval(), torch.randn(4, 6), batch=[1, 4])


def test_a_module_of_one_number_of_rows_is_told_so() -> None:
    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(-1, 4, 6) * 2

    with pytest.raises(GolowError, match="the module does not run on 2 rows"):
        compiled(Fixed().eval(), torch.randn(4, 6), batch=[4, 8])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": "4"}, "batch='4' is not a whole number"),
        ({"batch": [1, 2.5]}, "batch=2.5 is not a whole number"),
        ({"batch": True}, "batch=True is not a whole number"),
        ({"threads": "x"}, "'x' threads compute nothing"),
        ({"threads": 1.5}, "1.5 threads compute nothing"),
    ],
)
def test_options_of_other_types_are_named(
    module: nn.Module, options: dict[str, object], words: str
) -> None:
    with pytest.raises(GolowError, match=words):
        golow.compile(module, X, quiet=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("example", [None, 7, "x"])
def test_what_is_no_example_is_named(module: nn.Module, example: object) -> None:
    with pytest.raises(GolowError, match=f"the example is {type(example).__name__}, not tensors"):
        compiled(module, example)


def test_an_array_and_a_generator_are_examples(module: nn.Module) -> None:
    for example in (X.numpy(), (item for item in [X])):
        assert close(compiled(module, example)(X), module(X))


def test_nothing_is_compiled_under_autocast(module: nn.Module) -> None:
    """The module returns half precision there, and a plan would write float32 beyond it."""
    step = {"optimizer": golow.Optimizer(), "example": (X, torch.arange(4))}
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(GolowError, match="autocast is on"):
            compiled(module, X)
        with pytest.raises(GolowError, match="autocast is on"):
            golow.compile_step(module, nn.CrossEntropyLoss(), quiet=True, **step)  # type: ignore[arg-type]


class Exported(nn.Module):
    """It returns another type while it is exported."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x)
        return y > 0 if torch.compiler.is_exporting() else y


def test_outputs_that_would_not_fit_are_refused() -> None:
    words = r"output 0 of the module is float32\[2, 6\], and bool\[2, 6\] where torch captures it"
    with pytest.raises(GolowError, match=words):
        compiled(Exported().eval(), torch.randn(2, 6))


def test_an_example_by_name_is_named_so(module: nn.Module) -> None:
    with pytest.raises(GolowError, match="input input is bool, not a tensor"):
        compiled(module, {"input": True})
