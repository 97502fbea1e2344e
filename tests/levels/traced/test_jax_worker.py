"""The level `jax`: its threads, the programs that XLA compiled, what it needs, and its source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from golow.levels.probe import Probe
from golow.levels.traced.jax import level as jax
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.bundles import network_bundle
from support.workers.conformance_timing import allowed_cores, running_ns
from support.workers.conversation import Conversation, Subject
from support.workers.frameworks import JAX, write
from support.workers.precisions import in_precision

needs_package = pytest.mark.skipif(not jax.probe().available, reason="JAX is not installed")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles, sources and what XLA compiled are stored: each is compiled once."""
    return tmp_path_factory.mktemp("jax")


@needs_package
@pytest.mark.parametrize("threads", [1, 2])
def test_it_uses_the_cores_of_the_threads_that_golow_states(threads: int, workshop: Path) -> None:
    """Products large enough for XLA to share them out. Its pool and the thread that waits for it
    are one thread more than stated, so that the cores are counted on which they may run."""
    if len(os.sched_getaffinity(0)) < threads:
        pytest.skip("there are too few cores")
    folder = workshop / f"wide-{threads}"
    if not folder.exists():
        module = nn.Sequential(*(nn.Linear(768, 768) for _ in range(3)))
        request = Request(module, torch.randn(256, 768), threads=threads)
        write(request, folder)
    bundle = Bundle(folder)
    launch = jax.prepare(bundle, "", workshop / "cache")
    environment = worker_environment(launch.command[0], threads, launch.environment)
    with Conversation(Subject(launch.command, environment, bundle)) as worker:
        worker.load()
        before = running_ns(worker.process.pid)
        worker.time(50, 0)
        after = running_ns(worker.process.pid)
        allowed = allowed_cores(worker)
    used = [nanoseconds - before.get(thread, 0) for thread, nanoseconds in after.items()]
    # Of their own time, not of what passes: another program may have the second core meanwhile.
    assert not used or sum(each > 0.1 * sum(used) for each in used) >= threads
    assert len(allowed) == threads


@needs_package
@pytest.mark.parametrize(("mode", "variant"), JAX.programs)
def test_a_second_start_finds_what_xla_compiled(mode: Mode, variant: str, workshop: Path) -> None:
    subject = JAX.subject(mode, workshop, variant)
    with Conversation(subject) as worker:
        worker.load()
    compiled = Path(subject.command[-1], jax.COMPILED)
    before = {file.name for file in compiled.iterdir()}
    with Conversation(subject) as worker:
        worker.load()
    assert before
    assert {file.name for file in compiled.iterdir()} == before


# ---------------------------------------------------------------- refusals and the source


def test_an_old_version_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "version_of", lambda package: "0.4.38")
    monkeypatch.setattr(jax, "find_spec", lambda name: name)
    wanted = Probe(
        False, "jax 0.4.38 is too old, the level needs 0.7", "pip install --upgrade 'golow[jax]'"
    )
    assert jax.probe() == wanted


@pytest.mark.parametrize("version", ["0.7.0", "0.11.2", "1.0", "unknown"])
def test_a_newer_version_is_good(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "version_of", lambda package: version)
    monkeypatch.setattr(jax, "find_spec", lambda name: name)
    assert jax.probe().available


def test_jax_without_cuda_is_refused_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = in_precision(network_bundle(tmp_path / "bundle", "infer"), "ieee", "cuda")
    packages = {"jax": "0.11.2"}
    monkeypatch.setattr(jax, "version_of", lambda package: packages.get(package, "unknown"))
    with pytest.raises(Unsupported, match=r"without CUDA: pip install 'golow\[jax-cuda\]'"):
        jax.prepare(bundle, "", tmp_path / "cache")
    packages["jax-cuda13-plugin"] = "0.11.2"
    with pytest.raises(Unsupported, match=r"cuda-bindings is not installed"):
        jax.prepare(bundle, "", tmp_path / "cache")
    packages |= {"cuda-bindings": "13.1", "cuda-core": "1.0"}
    launch = jax.prepare(bundle, "", tmp_path / "cache")
    assert launch.build_measures
    assert launch.environment["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


@pytest.mark.slow
def test_images_keep_their_channels_last_between_layers() -> None:
    """No transposition from the first convolution to the product at the end."""
    prepared = prepare(Request("resnet18", mode="train", batch=2, resolution=32))
    graph = apply(capture(prepared).graph, CLEAN_UP)
    text = jax.source(apply(graph, jax.passes(prepared.workload)), prepared.workload)
    assert text.count("lax.conv_general_dilated(") == 20
    assert text.count("jnp.transpose(") <= 1
    assert "value_and_grad" in text


@pytest.mark.slow
def test_the_source_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from golow.cli import app

    shown = CliRunner().invoke(app, ["lower", "lenet5", "--show", "--level", "jax"])
    assert shown.exit_code == 0
    assert "def forward(weights, batch):" in shown.output


class Keyed(nn.Module):
    """A layer with the name of an argument, layers whose names begin with digits, and a draw."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(6, 6)
        self.blocks = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.BatchNorm1d(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.blocks(self.key(x))
        return found


def test_layers_may_have_any_name() -> None:
    prepared = prepare(Request(Keyed(), torch.randn(8, 6), mode="train"))
    graph = apply(capture(prepared).graph, CLEAN_UP)
    text = jax.source(apply(graph, jax.passes(prepared.workload)), prepared.workload)
    compile(text, "step.py", "exec")
    assert "key__ = " in text
    assert "jax.random.fold_in(key, 1)" in text
