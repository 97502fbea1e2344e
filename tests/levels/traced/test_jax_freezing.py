"""`jax:freezing`: the weights are in the compiled program, and other weights make another one."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from golow.levels import ladder
from golow.levels.traced.jax import level as level
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Precision
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle
from support.direct.in_process import assert_right
from support.workers.bundles import network_bundle
from support.workers.conversation import Conversation, Subject
from support.workers.precisions import in_precision

if not level.probe().available:
    pytest.skip("JAX is not installed", allow_module_level=True)

from golow.levels.traced.jax.execution import Execution
from golow.levels.traced.jax.freezing import Frozen
from golow.levels.traced.jax.program import Jax
from support.direct.jax_in_process import batch_of, compute, loaded, lower


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )


@pytest.mark.parametrize("precision", ["default", "bf16", "fp16"])
def test_it_computes_the_same(precision: Precision) -> None:
    frozen = lower(network(), torch.randn(4, 3, 8, 8), "infer", precision=precision)
    found, wanted = compute(frozen, Frozen), compute(frozen)
    if precision == "default":
        assert_right(frozen, found)
    assert found.keys() == wanted.keys()
    rounding = 1e-5 if precision == "default" else 2e-2
    for name, array in found.items():
        assert np.allclose(array, wanted[name], rtol=rounding, atol=rounding)


def test_the_program_gets_nothing_but_the_batch_and_alone_holds_the_weights() -> None:
    frozen = lower(network(), torch.randn(4, 3, 8, 8), "infer")
    found = []
    for kind in (Frozen, Execution):
        with loaded(frozen, kind) as execution:
            arrays = [weakref.ref(array) for array in execution.weights.values()]
            batch = execution.put_batch(batch_of(frozen, 0))
            execution.compile(batch)
            given = execution._compiled["infer"].memory_analysis().argument_size_in_bytes
            gc.collect()
            found.append((given, execution.temporary_bytes()))
        if kind is Frozen:
            assert not any(array() is not None for array in arrays)
            assert not execution.weights
    (given, allotted), (given_to_plain, allotted_by_plain) = found
    assert given == 4 * 3 * 8 * 8 * 4 < given_to_plain
    assert 0 < allotted <= allotted_by_plain


def doubled(bundle: Bundle, folder: Path) -> Path:
    """A state with twice the bundle's weights."""
    assert bundle.graph is not None
    weights = load_file(bundle.file("weights.safetensors"))
    kinds = {item.target: item.kind for item in bundle.graph.inputs if item.target in weights}
    file = folder / "state.safetensors"
    save_file({f"{kind}/{name}": weights[name] * 2 for name, kind in kinds.items()}, file)
    return file


def opened(bundle: Bundle, variant: str, cache: Path) -> Jax:
    program = Jax(variant, Path(level.prepare(bundle, variant, cache).command[-1]))
    program.load(bundle.folder)
    return program


def outputs(program: Jax, file: Path) -> np.ndarray:
    program.iterate()
    program.write_result(file)
    return load_file(file)["output/0"]


def test_other_weights_are_another_program(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "infer")
    state, file = doubled(bundle, tmp_path), tmp_path / "found.safetensors"
    found = {}
    for variant in ("", level.FREEZING):
        program = opened(bundle, variant, tmp_path / "cache")
        before = outputs(program, file)
        program.restore(state)
        program.seek(0)
        other = outputs(program, file)
        program.reset()
        found[variant] = before, other, outputs(program, file)
    for plain, frozen in zip(found[""], found[level.FREEZING], strict=True):
        assert np.allclose(plain, frozen, rtol=1e-4, atol=1e-5)
    before, other, again = found[level.FREEZING]
    assert np.array_equal(before, again)
    assert not np.allclose(before, other, rtol=1e-2, atol=1e-2)


def test_restored_weights_do_not_fill_the_cache(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "infer")
    launch = level.prepare(bundle, level.FREEZING, tmp_path / "cache")
    compiled = Path(launch.command[-1], level.COMPILED)
    environment = worker_environment(launch.command[0], 1, launch.environment)
    with Conversation(Subject(launch.command, environment, bundle)) as worker:
        worker.load()
        before = sorted(compiled.glob("jit_infer-*"))
        worker.ask(do="restore", file=str(doubled(bundle, tmp_path)))
        worker.time(1, 0)
    assert len(before) == 1
    assert sorted(compiled.glob("jit_infer-*")) == before


def test_what_is_built_of_other_weights_is_not_taken(tmp_path: Path) -> None:
    """The plain level shares one program, and one folder, between all weights."""
    bundle = network_bundle(tmp_path / "bundle", "infer")
    launches = [level.prepare(bundle, variant, tmp_path) for variant in ("", level.FREEZING)]
    other = Bundle(bundle.folder)
    other.workload = msgspec.structs.replace(bundle.workload, digest="of other weights")
    again = [level.prepare(other, variant, tmp_path) for variant in ("", level.FREEZING)]
    assert launches[0].built_by_loading == again[0].built_by_loading
    assert launches[1].built_by_loading != again[1].built_by_loading


def test_weights_that_are_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = network_bundle(tmp_path / "bundle", "infer")
    weights = load_file(bundle.file("weights.safetensors")).values()
    size = sum(array.nbytes for array in weights if array.dtype == np.float32)
    monkeypatch.setattr(level, "LARGEST_CONSTANTS", size - 1)
    with pytest.raises(Unsupported, match=r"GiB of constants; the weights have"):
        level.prepare(bundle, level.FREEZING, tmp_path / "cache")
    level.prepare(bundle, "", tmp_path / "cache")
    in_half = in_precision(bundle, "bf16", "cpu")
    level.prepare(in_half, level.FREEZING, tmp_path / "cache")
    monkeypatch.setattr(level, "LARGEST_CONSTANTS", size)
    level.prepare(bundle, level.FREEZING, tmp_path / "cache")


def test_it_is_for_inference() -> None:
    assert ladder.choose("jax:freezing", "infer", "cuda").name == "jax:freezing"
    with pytest.raises(GolowError, match="for infer only"):
        ladder.choose("jax:freezing", "train")
