"""The level `jax` in each precision, on a CPU, where XLA has half precision too: the check of real
workers, the source, and the loss scale."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import nn

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels import ladder
from golow.levels.starter import Starter
from golow.levels.traced.jax import level as jax
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret
from golow.records.workload import Mode, Precision
from golow.worker.protocol import Marks
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.examples import examples
from support.graphs.drawn_operators import FAMILIES
from support.workers.bundles import network_bundle
from support.workers.precisions import in_precision

if not jax.probe().available:
    pytest.skip("JAX is not installed", allow_module_level=True)

from golow.levels.traced.jax.program import Jax
from support.direct.in_process import assert_right
from support.direct.jax_in_process import batch_of, compute, loaded, lower

ROUNDING = {"bf16": 2.0**-8, "fp16": 2.0**-11}


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_a_worker_matches(precision: Precision, mode: Mode, tmp_path: Path) -> None:
    """Convolutions, batch norms, products, a pool and the update."""
    bundle = in_precision(network_bundle(tmp_path / "bundle", mode), precision)
    starter = Starter()
    standard = Standard(bundle, tmp_path, starter)
    with CheckedLevel(ladder.choose("jax", mode), bundle, tmp_path / "cache", starter) as level:
        assert level.start(standard, False, "1 of 1"), level.check.reason
        assert (level.check.verdict, level.check.reason) == ("match", "")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("family", FAMILIES)
@examples(3, same=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 99))
def test_an_operator_rounds_as_in_pytorch(
    family: str, precision: Precision, data: st.DataObject, seed: int
) -> None:
    """PyTorch runs the very graph, with its kernels for half precision."""
    alone = data.draw(FAMILIES[family])
    torch.manual_seed(seed)
    network = lower(alone.module(), torch.randn(alone.shape), "infer", precision=precision)
    given = {("input", "0"): network.prepared.batches[0].inputs[0]}
    given |= {("parameter", name): p.detach() for name, p in named(network.prepared.module)}
    given |= {("buffer", name): b for name, b in network.prepared.module.named_buffers()}
    given |= {("constant", name): c for name, c in network.constants.items()}
    tensors = {i.value.name: given[i.kind, i.target] for i in network.graph.inputs}
    wanted = interpret(network.graph, tensors)["output/0"].detach().float().numpy()
    with loaded(network) as execution:
        execution.run(execution.put_batch(batch_of(network, 0)))
        found = execution.result(("output", "0"))
    size = np.abs(wanted).max(initial=1.0)
    assert np.abs(found - wanted).max(initial=0.0) <= 8 * ROUNDING[precision] * size


def named(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(module.named_parameters())


# ---------------------------------------------------------------- the source


def source_of(precision: Precision, mode: Mode, device: str = "cpu") -> str:
    prepared = prepare(Request("resnet18", mode=mode, batch=2, resolution=32))
    workload = msgspec.structs.replace(prepared.workload, precision=precision, device=device)
    graph = apply(capture(prepared).graph, CLEAN_UP)
    return jax.source(apply(graph, jax.passes(workload)), workload)


def test_a_weight_is_cast_once_and_held_as_a_filter() -> None:
    """In training in each step, from float32; in inference before the first iteration."""
    trained, inferred = source_of("bf16", "train"), source_of("bf16", "infer")
    casts = re.findall(r"= parameters\[.*\]\.astype\(jnp\.bfloat16\)", trained)
    assert len(casts) == 20 + 2  # convolutions, and weight and bias of the last layer
    for text in (trained, inferred):
        assert text.count("lax.conv_general_dilated(") == 20
        assert text.count("jnp.transpose(") <= 1
    assert "weights[" in inferred
    assert not re.search(r"weights\[[^]]*\]\.astype", inferred)


def test_losses_and_statistics_are_float32() -> None:
    text = source_of("bf16", "train")
    distances = re.findall(r"__distance = (.*) - ", text)
    assert len(distances) == 20
    assert all(distance.endswith(".astype(jnp.float32)") for distance in distances)
    assert re.search(
        r"jax\.nn\.log_softmax\(\w+.astype\(jnp.float32\)|log_softmax\(\w+_float32", text
    )


def test_the_end_of_a_convolution_has_no_casts() -> None:
    """A sum of two halves and a relu are the same without; XLA fuses them only so."""
    ends = re.findall(r"(?:relu\w*|_add) = (.*)", source_of("bf16", "infer"))
    assert len(ends) == 17 + 8
    assert not any("astype" in end for end in ends)


@pytest.mark.parametrize(
    ("precision", "products", "convolutions"),
    [
        ("default", "highest", "default"),
        ("ieee", "highest", "highest"),
        ("tf32",) + ("default",) * 2,
    ],
)
def test_a_gpu_multiplies_in_the_precision_that_was_asked_for(
    precision: Precision, products: str, convolutions: str
) -> None:
    text = source_of(precision, "train", "cuda")
    assert f"PRECISION = {products!r}" in text
    assert text.count(f"precision={convolutions!r})") == 20


@pytest.mark.parametrize("precision", ["default", "tf32"])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_is_written_for_a_gpu_runs_here_and_is_right(mode: Mode, precision: Precision) -> None:
    """A CPU ignores TF32. Nothing waits between iterations, as on a GPU."""
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    module.append(nn.Linear(36, 5))
    network = lower(module, torch.randn(4, 3, 8, 8), mode, precision=precision, device="cuda")
    assert_right(network, compute(network))


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_a_gpu_keeps_is_what_a_cpu_reads_at_once(mode: Mode, tmp_path: Path) -> None:
    """The program of a GPU, run by XLA's CPU without waiting."""
    found = []
    for device in ("cpu", "cuda"):
        bundle = network_bundle(tmp_path / device, mode)
        folder = Path(jax.prepare(bundle, "", tmp_path / "cache").command[-1])
        program = Jax("plain", folder)
        program.load(in_precision(bundle, "ieee", device).folder)
        program.reset(0.05)
        program.seek(1)
        marks = Marks(input=0, start=3, length=40, low=-0.5, high=1.0, whole=False, seed=1)
        with program.marked(marks) as write:
            for start in (0, 7, 65535):
                write(start)
                program.iterate()
                program.keep()
        found.append(program.kept())
        assert program.kept() == []
        # The iteration's result and, on a GPU, the sum: the next event waits for both.
        enqueued = 2 if (mode, device) == ("infer", "cuda") else 1
        assert len(program.execution.take_enqueued()) == enqueued
    assert len(found[0]) == 3
    assert len(set(found[0])) == 3
    assert np.allclose(found[0], found[1], rtol=1e-5)


# ---------------------------------------------------------------- the loss scale


def test_a_step_whose_gradients_are_not_finite_changes_nothing_but_the_scale() -> None:
    network = lower(nn.Linear(6, 4), torch.randn(8, 6), "train", precision="fp16")
    with loaded(network) as execution:
        batch = execution.put_batch(batch_of(network, 0))
        before = execution.read(("parameter", "weight"))
        execution.set_scale(2.0**40, 7)
        execution.run(batch)
        assert np.array_equal(execution.read(("parameter", "weight")), before)
        assert execution.scale == 2.0**39
        assert int(execution.state["good_steps"]) == 0
        assert not execution.read(("momentum", "weight")).any()
        execution.set_scale(1024.0, 1999)
        execution.run(batch)
        assert not np.array_equal(execution.read(("parameter", "weight")), before)
        assert execution.scale == 2048.0
