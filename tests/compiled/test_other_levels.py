"""`golow.compile` at levels that are not direct ones: what they give is the module's output."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import golow
from golow.compiled.callable_levels import EXPORTED, IN_TORCH
from golow.compiled.handed_over import HandedOver
from golow.levels.ladder import choose
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, close, network

pytestmark = pytest.mark.usefixtures("forked")

BUILT = ("compile", "compile:freezing", *EXPORTED)
"""Levels that compile or export for a second or more; Inductor's package and kernels for longer."""

IN_MOMENTS = ("eager", "eager:channels_last", "torchscript")
LEVELS = [*IN_MOMENTS, *(pytest.param(name, marks=pytest.mark.slow) for name in BUILT)]
PACKAGED = "aotinductor"
NAMED_LEVELS = [
    *IN_MOMENTS,
    *(pytest.param(name, marks=pytest.mark.slow) for name in BUILT if name != PACKAGED),
    pytest.param(PACKAGED, marks=[pytest.mark.slow, pytest.mark.whole_network]),
]


def handed_over(module: nn.Module, inputs: Any, level: str, **options: Any) -> HandedOver:
    if not (probe := choose(level, "infer").level.probe()).available:
        pytest.skip(probe.missing)
    found = golow.compile(module, inputs, level=level, quiet=True, **options)
    assert isinstance(found, HandedOver)
    return found


@dataclass
class Scores:
    first: Tensor
    rest: dict[str, Tensor]


class Nested(nn.Module):
    """Takes its inputs by name, and returns tensors in a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(7, 6), nn.Linear(6, 5)

    def forward(self, ids: Tensor, scale: Tensor, unused: Tensor | None = None) -> Scores:
        found = self.layer(self.table(ids))
        return Scores(found * scale, {"mean": found.mean(1)})


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_gives_the_modules_output(level: str) -> None:
    module = network()
    with handed_over(module, X, level, threads=1) as f:
        first = f(X)
        kept = first.clone()
        other = torch.randn(4, 3, 12, 12)
        assert close(f(other), module(other))
        assert close(f(other.transpose(2, 3)), module(other.transpose(2, 3)))
        assert close(f(other.numpy()), module(other))
        assert close(first, module(X))
        assert torch.equal(first, kept)  # a later call does not change it
        assert not first.requires_grad
        assert first.is_inference() == (level not in ("onnxruntime", "openvino"))
        assert f.level == level


@pytest.mark.parametrize("level", NAMED_LEVELS)
def test_inputs_have_names_and_outputs_a_structure(level: str) -> None:
    torch.manual_seed(0)
    module = Nested().eval()
    ids, scale = torch.randint(7, (3, 4)), torch.randn(3, 1, 1)
    f = handed_over(module, {"ids": ids, "scale": scale}, level)
    for found in (f(ids=ids, scale=scale + 1), f({"scale": scale + 1, "ids": ids})):
        wanted = module(ids, scale + 1)
        assert isinstance(found, Scores)
        assert close(found.first, wanted.first)
        assert close(found.rest["mean"], wanted.rest["mean"])
    assert type(module) is Nested  # it takes its inputs as before
    assert close(module(ids, scale=scale).first, f(ids, scale).first)


@pytest.mark.parametrize("level", LEVELS)
def test_it_has_weights_of_its_own(level: str) -> None:
    module = network()
    f = handed_over(module, X, level, threads=1)  # as above, so that nothing is built again
    before = f(X)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert close(f(X), before)
    assert before.abs().max() > 0.01


def test_it_is_what_pytorch_calls_it() -> None:
    module = network()
    assert isinstance(handed_over(module, X, "eager").called, nn.Sequential)
    assert isinstance(handed_over(module, X, "torchscript").called, torch.jit.ScriptModule)
    order = handed_over(module, X, "eager:channels_last").called[0].weight
    assert order.is_contiguous(memory_format=torch.channels_last)
    assert module[0].weight.is_contiguous()


@pytest.mark.slow
@pytest.mark.whole_network
def test_frozen_code_is_not_that_of_another_module() -> None:
    """PyTorch would reuse what it compiled for the class: not frozen after it was compiled without,
    and nothing at all for a ninth module."""
    with torch.inference_mode():
        torch.compile(network(), dynamic=False)(X)
    plain = handed_over(network(), X, "compile")
    before = counters["stats"]["unique_graphs"]
    frozen = [handed_over(network(seed), X, "compile:freezing") for seed in range(9)]
    assert counters["stats"]["unique_graphs"] == before + 9
    for f in (plain, *frozen):
        with torch.no_grad():  # of the convolution, into which freezing folds the norm
            next(f.called.parameters()).zero_()
    assert not close(plain(X), network()(X))  # it reads its weights
    assert all(close(f(X), network(seed)(X)) for seed, f in enumerate(frozen))


@pytest.mark.slow
def test_programs_of_one_network_have_weights_of_their_own() -> None:
    """They share the library."""
    one, other = (handed_over(network(seed), X, "libtorch") for seed in range(2))
    assert one.called is other.called
    one.close()
    assert close(other(X), network(1)(X))


def test_pytorchs_settings_are_the_callers_again() -> None:
    torch.backends.cudnn.allow_tf32 = True
    seen = []

    class Asks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
            seen.append((torch.get_num_threads(), flags, torch.is_inference_mode_enabled()))
            return x + 1

    before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    f = handed_over(Asks().eval(), X, "eager", threads=before[0] + 1, precision="ieee")
    f(X)
    assert seen[-1] == (before[0] + 1, (False, False), True)
    assert before == (torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32)
    assert torch.backends.cudnn.allow_tf32 and not torch.is_inference_mode_enabled()


class Waits(nn.Module):
    """Its forward pass ends when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may, self.begun = threading.Event(), threading.Event()

    def __deepcopy__(self, memo: object) -> Waits:
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.begun.set()
        self.may.wait(60)
        return x


def test_two_threads_do_not_call_one_module() -> None:
    module = Waits().eval()
    f = handed_over(module, X, "eager")
    thread = threading.Thread(target=f, args=(X,))
    thread.start()
    module.begun.wait(60)
    with pytest.raises(GolowError, match="another thread is calling"):
        f(X)
    module.may.set()
    thread.join()
    assert torch.equal(f(X), X)


def test_a_forked_process_is_told() -> None:
    """Threads of PyTorch and of runtimes are not in it: a call would wait for them for ever."""
    f = handed_over(nn.ReLU().eval(), X, "eager")
    child = os.fork()
    if child == 0:
        try:
            f(X)
        except GolowError as error:
            os._exit(3 if "forked from" in error.message else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (X[:2], "input 0 is 2x3x12x12; .* a batch of 4 of 3x12x12\n.*compile the module again"),
        (X.double(), "input 0 is float64; this was compiled for float32"),
        (X.clone().requires_grad_(), "requires a gradient"),
        ("picture", "input 0 is str, not a tensor"),
    ],
)
def test_calls_that_do_not_fit_are_named(given: object, words: str) -> None:
    f = handed_over(network(), X, "eager")
    with pytest.raises(GolowError, match=words):
        f(given)
    assert f(X).shape == (4, 5)
    f.close()
    with pytest.raises(GolowError, match="closed"):
        f(X)


class Draws(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Unfinished(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError("not written yet")


@pytest.mark.parametrize(
    ("module", "level", "options", "words"),
    [
        (network().train(), "eager", {}, "the module is in training mode"),
        (network, "eager", {}, "the model is function, not a torch.nn.Module"),
        (network(), "tvm", {}, "golow.compile cannot build tvm on cpu\n.*levels are onednn, cudnn"),
        (network(), "eager:float64", {}, "golow.compile cannot build eager:float64"),
        (network(), "eager+no_grad", {}, "cannot build eager.no_grad .*that golow audit prints"),
        (network(), "eagre", {}, "there is no level 'eagre'\n.*did you mean eager"),
        (network(), "compile:frozen", {}, "compile has no variant 'frozen'"),
        (network(), "cudagraph", {}, "cudagraph runs on cuda only, not on cpu"),
        (network(), "eager", {"precision": "bf16"}, "bf16"),
        (network().double(), "eager", {}, "eager computes in float32, .*weight is float64"),
        (network().bfloat16(), "torchscript", {}, r"is bfloat16\n  call the module's .float\(\)"),
        (network(), "eager", {"batch": [1, 2]}, "batch= is for the direct levels; eager runs"),
        (network(), "eager", {"tune": True}, "tune=True is for the direct levels"),
        (network(), "eager", {"threads": 0}, "0 threads compute nothing"),
        (Unfinished().eval(), "eager", {}, None),
        (Unfinished().eval(), "torchscript", {}, "cannot run it: torch.jit cannot trace it: not"),
        (Draws().eval(), "openvino", {}, "draws random numbers, which openvino gets from golow"),
    ],
)
def test_what_cannot_be_handed_over_is_refused(
    module: Any, level: str, options: dict[str, Any], words: str | None
) -> None:
    if words is None:  # eager finds out when it is called, as the module itself
        with pytest.raises(NotImplementedError):
            handed_over(module, X, level, **options)(X)
        return
    with pytest.raises(GolowError, match=f"(?s){words}"):
        golow.compile(module, X, level=level, quiet=True, **options)


def test_a_level_inside_pytorch_draws_itself() -> None:
    f = handed_over(Draws().eval(), X, "eager")
    assert not torch.equal(f(X), f(X))


def test_every_level_of_the_list_is_in_a_test() -> None:
    names = {getattr(one, "values", (one,))[0].partition(":")[0] for one in LEVELS}
    assert names == {*IN_TORCH, *EXPORTED} - {"cudagraph"}


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("precision", ["default", "ieee", "bf16"])
@pytest.mark.parametrize(
    "level",
    [
        "eager",
        "torchscript",
        "cudagraph",
        "cudagraph:channels_last",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "compile",
                "compile:cudagraphs",
                "compile:freezing-cudagraphs",
                "libtorch",
            )
        ),
    ],
)
def test_a_gpu_gives_the_modules_output(level: str, precision: str) -> None:
    module, x = network().cuda(), X.cuda()
    found = golow.compile(module, x, level=level, precision=precision, quiet=True)  # type: ignore[arg-type]
    tolerance = 0.05 if precision == "bf16" else 1e-3
    first = found(x)
    kept, other = first.clone(), torch.randn_like(x)
    for given in (other, x):
        torch.testing.assert_close(
            found(given).float(), module(given), atol=tolerance, rtol=tolerance
        )
    assert torch.equal(first, kept)  # a replay does not change it
    assert next(module.parameters()).dtype == torch.float32
