"""`golow.compile`: a module's plan in the caller's process, called as the module."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import golow
from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
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


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip
    return layers.eval()


def compiled(module: nn.Module, inputs: object, **options: object) -> CompiledModule:
    return golow.compile(module, inputs, quiet=True, threads=1, **options)  # type: ignore[arg-type]


def close(found: Tensor, wanted: Tensor) -> bool:
    return found.shape == wanted.shape and torch.allclose(found, wanted.detach(), atol=1e-5)


X = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return network()


@pytest.fixture(scope="module")
def f(module: nn.Module) -> CompiledModule:
    return compiled(module, X, batch=[1, 2, 4])


# ---------------------------------------------------------------- called as the module


@pytest.mark.parametrize("name", sorted(CASES)[::9])
def test_a_network_gives_what_the_module_gives(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    module, x = case.make().eval(), torch.randn(case.shape)
    f = compiled(module, x)
    assert f.check(x).matches
    assert f.check(x.flip(0) * 2).matches


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
    negative = torch.complex(X, -X).conj().imag  # its memory has the other sign
    assert negative.is_neg()
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


def test_out_takes_the_output(f: CompiledModule, module: nn.Module) -> None:
    out = torch.empty(4, 5)
    assert f(X, out=out) is out
    assert close(out, module(X))
    with pytest.raises(GolowError, match=r"output 0 of out must be .* 4x5 of float32"):
        f(X, out=torch.empty(5, 4).T)
    with pytest.raises(GolowError, match="another structure"):
        f(X, out=(out,))
    with pytest.raises(GolowError, match="3 is padded to 4"):
        f(X[:3], out=torch.empty(3, 5))


# ---------------------------------------------------------------- weights


def test_weights_are_its_own_until_others_are_loaded() -> None:
    module = network()
    f = compiled(module, X, batch=[2, 4])
    other = f.context()
    before = f(X)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    assert torch.equal(f(X), before)
    f.load_state_dict(module.state_dict())
    for call in (f, other):
        assert close(call(X), module(X))
        assert close(call(X[:2]), module(X[:2]))
    assert f.check(X).matches


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(functional.gelu(self.table(tokens)))


def test_a_tied_weight_is_loaded_for_both() -> None:
    module = Tied().eval()
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    f = compiled(module, tokens, batch=[1, 2])
    assert close(f(tokens), module(tokens))
    changed = Tied().eval()
    f.load_state_dict(changed.state_dict())
    assert close(f(tokens), changed(tokens))


def wide(bias: float | None = None) -> nn.Module:
    """A network most of whose memory are weights; its biases may all be equal."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), *(nn.Conv2d(64, 64, 3, padding=1) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64),
    )  # fmt: skip
    for layer in module:
        if bias is not None and hasattr(layer, "bias"):
            nn.init.constant_(layer.bias, bias)
    return module.eval()


def test_sizes_share_their_weights() -> None:
    """But for products, whose weights lie otherwise for one row than for several."""
    alone = compiled(wide(), X, batch=[4]).memory()["weights"]
    assert alone >= 4 * sum(p.numel() for p in wide().parameters())
    assert compiled(wide(), X, batch=[1, 2, 3, 4]).memory()["weights"] <= 1.1 * alone


def test_weights_that_were_equal_are_not_the_same() -> None:
    """Biases of one size and one value, in several layers and plans; then they differ."""
    f = compiled(wide(bias=0.0), X, batch=[1, 2, 4])
    other = wide()
    f.load_state_dict(other.state_dict())
    for rows in (1, 2, 4):
        assert close(f(X[:rows]), other(X[:rows]))


def test_the_weights_of_another_module_are_refused_and_nothing_changes(f: CompiledModule) -> None:
    before = f(X)
    state = network(1).state_dict()
    with pytest.raises(GolowError, match=r"8.weight is \[3, 64\] .* the module's is \[5, 64\]"):
        f.load_state_dict({**state, "8.weight": torch.randn(3, 64)})
    with pytest.raises(GolowError, match=r"8.bias is missing"):
        f.load_state_dict({k: v for k, v in state.items() if k != "8.bias"})
    with pytest.raises(GolowError, match=r"head.weight is not the module's"):
        f.load_state_dict({**state, "head.weight": torch.randn(1)})
    assert torch.equal(f(X), before)


def test_a_wrong_weight_is_found_by_the_check() -> None:
    """The plan has other weights than the module: one element of one."""
    module = network()
    f = compiled(module, X)
    state = {name: item.clone() for name, item in module.state_dict().items()}
    state["0.weight"][0, 0, 0, 0] += 0.1
    f.load_state_dict(state)
    f._state = module.state_dict()  # what the plan should have
    found = f.check(X)
    assert not found.matches
    assert "too far" in str(found)


# ---------------------------------------------------------------- threads and processes


def test_contexts_run_at_once_and_one_context_does_not(module: nn.Module) -> None:
    f = compiled(module, X)
    wanted = [module(X * k).detach() for k in range(4)]
    wrong: list[int] = []

    def work(call: Callable[[Tensor], Tensor], k: int) -> None:
        wrong.extend(k for _ in range(50) if not close(call(X * k), wanted[k]))

    threads = [threading.Thread(target=work, args=(f.context(), k)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    context = f.context()
    with context._lock, pytest.raises(GolowError, match="another thread is calling"):
        context(X)


def test_each_call_has_its_own_number_of_threads(module: nn.Module) -> None:
    """Also where modules with other numbers are called in between."""
    openmp = ctypes.CDLL("libgomp.so.1")
    one = golow.compile(module, X, threads=1, quiet=True)
    two = golow.compile(module, X, threads=2, quiet=True)
    for f, threads in ((one, 1), (two, 2), (one, 1)):
        f(X)
        assert openmp.omp_get_max_threads() == threads


def test_a_process_that_was_forked_is_told(f: CompiledModule) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            f(X)
            said = "nothing"
        except GolowError as error:
            said = error.message
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "forked from" in pipe.read()
    os.waitpid(child, 0)
    assert f(X).shape == (4, 5)


def test_many_calls_leave_nothing_behind_and_give_the_same_bits(f: CompiledModule) -> None:
    first = f(X)

    def held() -> tuple[int, int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages, len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    for k in range(500):
        f(X * (1 + k % 3))
    pages, files, threads = held()
    for k in range(2000):
        f(X[: 1 + k % 4] * (1 + k % 3))
    assert torch.equal(f(X), first)
    later = held()
    assert later[0] <= pages + 1024  # 4 MiB: an input kept by each call would be 8 MiB
    assert later[1:] == (files, threads)


# ---------------------------------------------------------------- what does not fit


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
        (lambda f: f(X.to_sparse()), "input 0 is sparse_coo"),
        (lambda f: f(X.numpy().astype(">f4")), "input 0 is an array that PyTorch cannot read"),
        (lambda f: f("picture"), "input 0 is str, not a tensor"),
        (lambda f: f(), "input input is missing"),
        (lambda f: f(X, X), "2 inputs are too many; this was compiled for input"),
        (lambda f: f(images=X), "images is no input; this was compiled for input"),
        (lambda f: f.plan(3), "no plan for a batch of 3"),
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


# ---------------------------------------------------------------- figures, and any call


def test_plan_and_memory_are_told(f: CompiledModule) -> None:
    assert "convolution" in f.plan()
    assert f.plan(1) != f.plan(4)
    memory = f.memory()
    weights = sum(p.numel() for p in network().parameters()) * 4
    assert memory["weights"] >= weights
    assert memory["iteration"] > X.numel()


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
