"""Draws of a model are inputs of its step; dropout called as a function is a random layer."""

from __future__ import annotations

import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from golow.check.checked_level import CheckedLevel
from golow.check.marked_places import choose_spans
from golow.check.moved_bundle import write_moved_bundle
from golow.check.reference import Standard
from golow.check.rounding import FLOAT32
from golow.levels import ladder
from golow.levels.ladder import ChosenLevel, Launch, Level, Probe
from golow.levels.torch import bundle as torch_bundle
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret
from golow.records.errors import GolowError
from golow.records.workload import Mode, Optimizer
from golow.worker.protocol import Challenge
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.draws import accept_draws, drawn
from golow.workload.dropout_calls import DROPOUT_CALLS, dropout_calls_off
from golow.workload.graph_capture import capture, write_graph
from golow.workload.patched_functions import installed
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from golow.workload.settled_draws import _require_given
from support.examples import examples
from support.models import drawing_networks
from support.models.drawing_networks import (
    Bernoulli,
    Depth,
    DropoutAlways,
    DropoutCall,
    DropoutInAttention,
    Fractional,
    Gumbel,
    Mixed,
    Noise,
    Permutation,
    Threshold,
)
from support.models.model_files import assert_computes, imports_forgotten, refusal
from support.one_run import program_cache
from support.places import SUPPORT
from support.workers.kept_workers import KeptWorkers, kept_workers

pytestmark = pytest.mark.usefixtures("forked")

NETWORKS = Path(drawing_networks.__file__)
ORIGINALS = {name: getattr(torch, name) for name in ("rand", "randn_like", "bernoulli")}


def prepared(network: type[nn.Module], mode: Mode, batch: int = 8) -> Prepared:
    with imports_forgotten():
        return prepare(
            Request(
                f"{NETWORKS}:{network.__name__}",
                mode=mode,
                batch=batch,
                input_shape=(16,),
                optimizer=Optimizer(learning_rate=0.1),
            )
        )


def bundle_of(network: type[nn.Module], mode: Mode, folder: Path) -> Bundle:
    made = prepared(network, mode)
    bundle, made = write_bundle(made, folder)
    assert write_graph(made, bundle) == []
    return bundle


# ---------------------------------------------------------------- what is given

IN_BOTH = {Noise: 1, Threshold: 1, Bernoulli: 1, Gumbel: 1, Permutation: 1, Fractional: 1}
IN_INFERENCE = {**IN_BOTH, DropoutAlways: 1, Mixed: 3, DropoutCall: 0, Depth: 0}
IN_TRAINING = {**IN_BOTH, DropoutAlways: 0, Mixed: 3, DropoutCall: 0, Depth: 1}


@pytest.mark.parametrize(
    ("network", "mode", "draws"),
    [(network, "infer", n) for network, n in IN_INFERENCE.items()]
    + [(network, "train", n) for network, n in IN_TRAINING.items()],
)
def test_what_a_forward_pass_draws_is_given(
    network: type[nn.Module], mode: Mode, draws: int
) -> None:
    made = prepared(network, mode)
    assert made.workload.draws == draws
    assert len(made.workload.inputs) == 1 + draws
    assert all(len(batch.inputs) == 1 + draws for batch in made.batches)
    for one, other in zip(made.batches, made.batches[1:], strict=False):
        for position in range(1, 1 + draws):
            if one.inputs[position].numel() > 20:
                assert not torch.equal(one.inputs[position], other.inputs[position])
    again_made = prepared(network, mode)
    for batch, repeated in zip(made.batches, again_made.batches, strict=True):
        assert all(map(torch.equal, batch.inputs, repeated.inputs))
    assert {name: getattr(torch, name) for name in ORIGINALS} == ORIGINALS
    assert "bernoulli_" not in vars(Tensor)


@contextmanager
def own_class(module: nn.Module) -> Iterator[None]:
    """The module as its own code made it, within the block."""
    if not hasattr(module, "golow_draws"):  # it draws nothing in this mode
        yield
        return
    given = type(module)
    module.__class__ = given.__bases__[1]
    draws = vars(module).pop("golow_draws")
    try:
        yield
    finally:
        module.__class__ = given
        module.golow_draws = draws


@pytest.mark.parametrize(
    "network", [Noise, Threshold, Bernoulli, Gumbel, Depth, Permutation, Mixed]
)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_given_draws_are_what_was_drawn(network: type[nn.Module], mode: Mode) -> None:
    """The same seed in the model as its own code made it gives the same output, bit by bit."""
    made = prepared(network, mode)
    module, batch = made.module, made.batches[2]
    off = dropout_calls_off()
    with installed(DROPOUT_CALLS), off, torch.no_grad():
        if mode == "train":
            for layer in module.modules():
                if isinstance(layer, nn.Dropout):
                    layer.p = 0.0
        found = module(*batch.inputs)
        with own_class(module), torch.random.fork_rng():
            torch.manual_seed(made.workload.seed + 2)
            expected = module(batch.inputs[0])
    assert torch.equal(found, expected)


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "rand": lambda x: x + torch.rand(3, 4),
    "randn of a size": lambda x: x * torch.randn((4,)),
    "like": lambda x: x - torch.rand_like(x),
    "uniform": lambda x: x * x.new_empty(3, 1).uniform_(-1, 2),
    "normal": lambda x: x + torch.empty_like(x).normal_(1, 2),
    "of two tensors": lambda x: x + torch.normal(x.detach(), torch.ones(3, 4)),
    "exponential": lambda x: x / torch.empty(4).exponential_(),
    "mask": lambda x: x.masked_fill(torch.rand(3, 4).ge(0.5), 0),
    "changed": lambda x: x * torch.rand(3, 1).mul_(2),
    "whole numbers": lambda x: x[torch.randint(3, (3,))],
    "method": lambda x: x * torch.full((3, 4), 0.5).bernoulli(),
    "choice": lambda x: x[:, torch.multinomial(torch.ones(4), 4)],
    "dropout": lambda x: functional.dropout(x, 0.3),
    "in place": lambda x: functional.dropout(x.clone(), 0.3, True, True),
    "distribution": lambda x: x + torch.distributions.Normal(0.0, 1.0).sample((3, 4)),
    "poisson": lambda x: x + torch.poisson(torch.full((3, 4), 2.0)),
    "order": lambda x: x[:, torch.randperm(4)],
    "whole numbers like": lambda x: x + torch.randint_like(x, 9),
    "geometric": lambda x: x + torch.empty(4).geometric_(0.5),
    "Cauchy": lambda x: x + torch.empty(4).cauchy_(),
    "log normal": lambda x: x + torch.empty(4).log_normal_(),
    "random": lambda x: x + torch.empty(4, dtype=torch.int64).random_(9),
    "nothing": lambda x: x.tanh(),
}


class Chain(nn.Module):
    def __init__(self, kinds: list[str]) -> None:
        super().__init__()
        self.kinds = kinds

    def forward(self, x: Tensor) -> Tensor:
        for kind in self.kinds:
            x = KINDS[kind](x)
        return x


@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=6), st.integers(0, 1000))
@examples(60)
def test_any_draws_are_recorded_and_given(kinds: list[str], seed: int) -> None:
    module, x = Chain(kinds), torch.ones(3, 4)
    with drawn("infer", seed, "cpu") as draws:
        expected = module(x)
    assert len(draws) == sum(kind != "nothing" for kind in kinds)
    if not draws:
        return
    before = [draw.clone() for draw in draws]
    accept_draws(module, len(draws), "infer")
    for _ in range(2):
        assert torch.equal(module(x, *draws), expected)
    assert all(map(torch.equal, draws, before))  # the model changed copies of them
    for others, reason in (
        ([*draws, torch.zeros(1)], f"draws {len(draws)} times, not {len(draws) + 1}"),
        (draws[:-1], f"draws more than {len(draws) - 1} times"),
    ):
        module.golow_draws = (len(others), "infer")  # type: ignore[assignment]
        if others:
            with pytest.raises(GolowError, match=reason):
                module(x, *others)


# ---------------------------------------------------------------- the captured graph


@pytest.mark.parametrize("network", [Noise, Threshold, Gumbel, DropoutAlways, Permutation, Mixed])
def test_the_graph_reads_the_draws(network: type[nn.Module]) -> None:
    made = prepared(network, "infer")
    captured = capture(made)
    graph = apply(captured.graph, CLEAN_UP)
    for batch in made.batches[:2]:
        found = interpret(graph, values(graph, made, captured.constants, batch.inputs))
        with torch.no_grad():
            torch.testing.assert_close(found["output/0"], made.module(*batch.inputs))


def values(
    graph: Graph, made: Prepared, constants: dict[str, Tensor], inputs: tuple[Tensor, ...]
) -> dict[str, Tensor]:
    state = {**made.module.state_dict(), **constants}
    return {
        item.value.name: inputs[int(item.target)] if item.kind == "input" else state[item.target]
        for item in graph.inputs
    }


def test_tracing_dropout_takes_no_draw() -> None:
    """PyTorch traces dropout by a definition that calls ``torch.rand_like`` itself."""
    graph = capture(prepared(Mixed, "train")).graph
    ops = [node.op for node in graph.nodes]
    assert ops.count("aten.native_dropout.default") == 2
    assert not {"aten.rand_like.default", "aten.bernoulli.p"} & set(ops)
    assert all(any(item.target == str(n) for item in graph.inputs) for n in range(4))


# ---------------------------------------------------------------- workers


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptWorkers]:
    with kept_workers() as workers:
        yield workers


@pytest.mark.slow
def test_workers_get_the_same_draws(tmp_path: Path) -> None:
    for network in (Mixed, DropoutAlways):
        assert_computes(prepared(network, "infer"), tmp_path / network.__name__)


def test_a_live_module_is_carried_as_its_code_made_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = prepare(Request(Noise(), torch.randn(8, 16)))
    bundle, made = write_bundle(made, tmp_path / "bundle")
    carried = pickle.loads((bundle.folder / "module.pkl").read_bytes())  # noqa: S301 - our own
    assert type(carried) is Noise
    assert "golow_draws" not in vars(carried)
    inputs = made.batches[1].inputs
    assert torch.equal(torch_bundle.module(bundle).eval()(*inputs), made.module(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "mode", "levels"),
    [
        (Mixed, "infer", ("torchscript", "onednn")),
        (Mixed, "train", ("torchscript", "libtorch", "onednn")),
        pytest.param(DropoutInAttention, "train", ("compile",), marks=pytest.mark.whole_network),
    ],
)
def test_every_level_matches_in_check_and_timed(
    network: type[nn.Module], mode: Mode, levels: tuple[str, ...], kept: KeptWorkers, tmp_path: Path
) -> None:
    bundle = bundle_of(network, mode, tmp_path / "bundle")
    standard = Standard(bundle, tmp_path, kept.starter())
    for name in levels:
        chosen = ladder.choose(name, mode)
        if not chosen.level.probe().available:
            continue
        with CheckedLevel(
            chosen, bundle, program_cache(tmp_path.parent), kept.starter(), timed=True
        ) as level:
            level.start(standard, False, "1 of 1")
            assert (level.check.verdict, level.check.reason) == ("match", ""), name
            assert level.worker is not None
            rates = Challenge(learning_rate=0.0)
            one, other = (level.worker.time(6, 0, challenge=rates).results for _ in range(2))
            # Timed after the check, dropout is on again: masks differ, so losses do.
            assert (one == other) is (not bundle.workload.random_layers), name


# ---------------------------------------------------------------- planted


def planted_level() -> ChosenLevel:
    command = (sys.executable, str(SUPPORT / "plants" / "planted_draws.py"))

    def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
        return Launch(command)

    return ChosenLevel(Level("planted", "", "", lambda: Probe(True), prepare), "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "mode", "plants"),
    [
        (Mixed, "infer", ("own draws", "previous draws", "one element", "timed only")),
        (Mixed, "train", ("one element", "drops in the check")),
        (Noise, "train", ("timed only",)),
    ],
)
def test_wrong_draws_are_found(
    network: type[nn.Module], mode: Mode, plants: tuple[str, ...], kept: KeptWorkers, tmp_path: Path
) -> None:
    bundle = bundle_of(network, mode, tmp_path / "bundle")
    standard = Standard(bundle, tmp_path, kept.starter())
    for plant in ("nothing", *plants):
        folder = tmp_path / "planted"
        shutil.copytree(bundle.folder, folder)
        (folder / "plant").write_text(plant)
        planted = Bundle(folder)
        with CheckedLevel(planted_level(), planted, tmp_path, kept.starter(), timed=True) as level:
            level.start(standard, False, "1 of 1")
            assert level.check.verdict == ("match" if plant == "nothing" else "differs"), plant
        shutil.rmtree(folder)


def test_draws_are_neither_moved_nor_marked(tmp_path: Path) -> None:
    """Half of a mask's one, or a draw moved across a threshold, is no draw."""
    bundle = bundle_of(Threshold, "infer", tmp_path / "bundle")
    moved = write_moved_bundle(bundle, tmp_path / "moved", 0, FLOAT32)
    before, after = (load_file(b.file("batches.safetensors")) for b in (bundle, moved))
    assert all(torch.equal(before[f"{n}/input/1"], after[f"{n}/input/1"]) for n in range(4))
    assert not torch.equal(before["0/input/0"], after["0/input/0"])
    assert {span.input for place in choose_spans(bundle) for span in place} == {0}


# ---------------------------------------------------------------- dropout that is called


@pytest.mark.parametrize(
    ("network", "called"),
    [
        (DropoutCall, ("functional.dropout",)),
        (DropoutAlways, ("functional.dropout",)),
        (DropoutInAttention, ("functional.scaled_dot_product_attention",)),
        (Mixed, ("drop", "functional.dropout")),
    ],
)
def test_dropout_that_is_called_is_a_random_layer(
    network: type[nn.Module], called: tuple[str, ...]
) -> None:
    assert prepared(network, "train").workload.random_layers == called
    assert prepared(DropoutCall, "infer").workload.random_layers == ()


@pytest.mark.parametrize("name", ["dropout", "dropout2d", "alpha_dropout"])
def test_calls_of_dropout_are_switched(name: str) -> None:
    x = torch.ones(8, 4, 16, 16)
    with installed(DROPOUT_CALLS):
        called = getattr(functional, name)
        assert not torch.equal(called(x, 0.5, True), x)
        with dropout_calls_off():
            assert torch.equal(called(x, 0.5, True), x)
            assert torch.equal(called(x, p=0.5, training=True), x)
            assert torch.equal(called(input=x), x)
        assert not torch.equal(called(x, 0.5, True), x)
    assert getattr(functional, name) is not called


# ---------------------------------------------------------------- refused


def refused(network: type[nn.Module], **asked: object) -> GolowError:
    with imports_forgotten():
        return refusal(f"{NETWORKS}:{network.__name__}", input_shape=(16,), batch=8, **asked)


@pytest.mark.parametrize("network", [drawing_networks.RandomSlope, drawing_networks.AnotherName])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_draws_that_are_not_seen_are_refused(network: type[nn.Module], mode: Mode) -> None:
    error = refused(network, mode=mode)
    assert "is random in" in error.message
    assert "by these names" in error.hint


def test_draws_of_a_backward_pass_are_refused() -> None:
    assert "its backward pass" in refused(drawing_networks.ComputedAgain, mode="train").message


def test_draws_of_other_shapes_are_refused() -> None:
    assert "for one batch and" in refused(drawing_networks.OtherShapes).message


def test_half_precision_would_round_draws() -> None:
    draws = [torch.ones(1)]
    with pytest.raises(GolowError, match="which bf16 would round"):
        _require_given("n", draws, draws, Request("n", precision="bf16"))


def test_layers_of_other_packages_beside_draws_are_refused() -> None:
    layer = type("StochasticDepth", (nn.Module,), {
        "__module__": "torchvision.ops.stochastic_depth",
        "forward": lambda self, x: drawing_networks.stochastic_depth(x, self.p, self.training),
    })()  # fmt: skip
    layer.p = 0.3
    layered = nn.Sequential(Noise(), layer)
    message = refusal(layered, torch.randn(8, 16), mode="train").message
    assert "cannot tell them apart" in message
    alone = prepare(
        Request(nn.Sequential(nn.Linear(16, 4), layer), torch.randn(8, 16), mode="train")
    )
    assert (alone.workload.draws, alone.workload.random_layers) == (0, ("1",))
