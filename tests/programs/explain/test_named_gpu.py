"""`golow lower --gpu`: the plan and the roof of a GPU that is not here."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import golow
from golow.levels.direct.cudnn.engines.unchosen import UnchosenEngines, UnchosenNetwork
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.recurrent_network import RecurrentNetwork
from golow.levels.nvidia.known_gpus import KNOWN, named
from golow.programs.explain.show_lowering import lower
from golow.records.errors import GolowError
from golow.records.workload import Mode, Precision
from golow.workload.prepare import prepare_for_absent
from golow.workload.request import Request
from support.command import golow as command
from support.direct.cudnn_plans import assert_sound, lowered

PRECISIONS: tuple[Precision, ...] = ("ieee", "default", "tf32", "bf16", "fp16")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_half_of_the_bytes_in_half_precision(mode: Mode) -> None:
    module = nn.Sequential(nn.Conv2d(64, 64, 3), nn.GELU(), nn.Flatten(), nn.Linear(2304, 8))
    moved = {}
    for precision in ("tf32", "bf16"):
        found = golow.roof(
            module, torch.randn(2, 64, 8, 8), mode=mode, device="cuda", gpu="H200", quiet=True,
            precision=precision, loss="mse_loss" if mode == "train" else None,
        ).roof  # fmt: skip
        assert (found.level, found.gpu, found.time) == ("cudnn", "H200", None)
        assert found.peak.bytes == KNOWN["h200"].bandwidth
        steps = [step for step in found.steps if step.phase == "forward" and not step.layout_alone]
        assert {"convolution", "linear"} <= {step.operation for step in steps}
        assert all(step.seconds is None for step in steps)
        moved[precision] = {s.operation: s.bytes for s in steps}["linear"]
    assert moved["bf16"] == moved["tf32"] / 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_plans_without_engines_are_sound(mode: Mode, precision: Precision, times: bool) -> None:
    engines = UnchosenEngines(KNOWN["l4"], times)
    graph = lowered("mobilenet_v2", mode, (64,))
    assert_sound(build_plan(graph, engines, TYPES[precision], 4))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_variant_that_times_has_functions_within_convolutions() -> None:
    """Whose engines take a function, if a pass over the result takes longer."""
    module = nn.Sequential(nn.Conv2d(64, 64, 3), nn.SiLU())
    steps = {}
    for level in ("cudnn", "cudnn:autotune"):
        found = golow.roof(
            module, torch.randn(8, 64, 64, 64), level=level, device="cuda", gpu="h200",
            precision="bf16", quiet=True,
        ).roof  # fmt: skip
        steps[level] = {step.operation for step in found.steps if not step.layout_alone}
    assert steps["cudnn"] - steps["cudnn:autotune"] == {"activation"}
    assert "convolution" in steps["cudnn:autotune"]


@given(
    kind=st.sampled_from(["lstm", "gru", "rnn_tanh"]),
    layers=st.integers(1, 3),
    sides=st.integers(1, 2),
    hidden=st.integers(1, 40),
    projected=st.booleans(),
    biased=st.booleans(),
)
def test_the_weights_of_a_network_fill_their_space(
    kind: str, layers: int, sides: int, hidden: int, projected: bool, biased: bool
) -> None:
    results = max(hidden // 2, 1) if projected and kind == "lstm" else hidden
    problem = RecurrentNetwork(
        kind=kind, layers=layers, sides=sides, steps=5, rows=2, inputs=3, hidden=hidden,  # type: ignore[arg-type]
        results=results, biased=biased, batch_major=False, dtype="float32", arithmetic="tf32",
        trains=True,
    )  # fmt: skip
    network = UnchosenNetwork(problem)
    spans = []
    for end, places in enumerate(network.places):
        for name, shape in problem.parameters(end // sides).items():
            spans.append((places[name], places[name] + 4 * torch.Size(shape).numel()))
    spans.sort()
    assert [begin for begin, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == network.weight_bytes
    with pytest.raises(RuntimeError, match="no algorithm"):
        network.forward({}, 0)


def test_the_fastest_arithmetic_is_that_of_the_precision() -> None:
    for gpu in KNOWN.values():
        rates = [gpu.operations(precision) for precision in PRECISIONS]
        assert rates == sorted(rates)
        assert rates[1] == rates[2] and rates[3] == rates[4]
    assert named("H200") is KNOWN["h200"]


def test_an_unknown_gpu_is_refused_with_the_names() -> None:
    with pytest.raises(GolowError, match="'h20'") as raised:
        named("h20")
    assert all(name in str(raised.value.hint) for name in KNOWN)


@pytest.mark.parametrize(
    ("level", "words"),
    [("eager", "no plan for a GPU"), ("cudnn:called", "the plan of cudnn")],
)
def test_a_level_without_such_a_plan_is_refused(level: str, words: str) -> None:
    prepared = prepare_for_absent(Request("lenet5", batch=1, device="cuda"))
    with pytest.raises(GolowError, match=words):
        lower(prepared, level, gpu="h200")


@pytest.mark.slow
def test_the_command_shows_the_plan_without_a_gpu() -> None:
    done = command("lower", "lenet5", "--device", "cuda", "--gpu", "h200", "--show")
    assert done.status == 0, done.error
    assert "# the plan of vendor for H200" in done.output
    assert "moved for layout alone" in done.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "h200"], "--device cuda"),
        (["--device", "cuda", "--gpu", "h20"], "h100, h200"),
        (["--device", "cuda", "--gpu", "h200", "--verify"], "--verify"),
        (["--device", "cuda", "--gpu", "h200", "--roof", "--measure"], "--measure"),
    ],
)
def test_what_does_not_go_with_a_named_gpu_is_refused(arguments: list[str], message: str) -> None:
    done = command("lower", "lenet5", *arguments)
    assert done.status == 2
    assert message in done.error
    assert "Traceback" not in done.error
