"""ExecuTorch, TVM and IREE: what they do otherwise than other peers, what they refuse, and that the
check finds an error in them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import golow
from golow.levels import compiler, ladder
from golow.levels.peers import exported_program
from golow.levels.peers.array_program import Array, ArrayProgram
from golow.records.errors import Unsupported
from golow.worker.process import worker_environment
from golow.worker.protocol import LoadReport
from golow.worker.serve import run
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.bundles import network_bundle
from support.workers.conformance_timing import threads_at_work
from support.workers.conversation import Conversation, Subject

NAMES = ("executorch", "tvm")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        not ladder.choose(name, "infer").level.probe().available,
        reason=f"the extra golow[{name}] is not installed",
    )


each_peer = pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in NAMES])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peers")


def bundle_of(module: nn.Module, inputs: tuple[Tensor, ...], folder: Path) -> Bundle:
    return write_bundle(prepare(Request(module.eval(), inputs, threads=1)), folder)[0]


def subject_of(name: str, bundle: Bundle, cache: Path) -> Subject:
    launch = ladder.choose(name, "infer").level.prepare(bundle, "", cache)
    threads = bundle.workload.threads
    environment = worker_environment(launch.command[0], threads, launch.environment)
    return Subject(launch.command, environment, bundle)


# ---------------------------------------------------------------- each of them alone


@needs("tvm")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_tvm_says_that_it_uses_one_thread(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "infer", threads=2, batch=64)
    with Conversation(subject_of("tvm", bundle, tmp_path)) as worker:
        worker.load()
        assert worker.loaded["notes"] == ["without tuning TVM uses 1 of 2 threads"]
        worker.time(5, 0)
        assert threads_at_work(worker, iterations=50) in (1, None)


@needs("tvm")
def test_tvm_is_compiled_again_for_another_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundle_of(nn.Linear(4, 2), (torch.randn(2, 4),), tmp_path / "bundle")
    level = ladder.choose("tvm", "infer").level
    level.prepare(bundle, "", tmp_path)
    assert level.prepare(bundle, "", tmp_path).cached
    monkeypatch.setattr(exported_program, "instruction_sets", lambda: "flags: another")
    assert not level.prepare(bundle, "", tmp_path).cached


@needs("tvm")
@pytest.mark.whole_network
def test_tvm_spends_its_trials_while_it_builds(cache: Path) -> None:
    """It starts a process for each of them, which imports TVM."""
    result = golow.compare(
        nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8)), torch.randn(8, 32),
        levels=["tvm:tuned-brief"], threads=2, time_limit=0.1, cache=cache, quiet=True,
    )  # fmt: skip
    run = result.run("tvm:tuned-brief")
    if run.check.verdict == "unavailable" and "its tuner crashes" in run.check.reason:
        pytest.skip(run.check.reason)
    assert (run.check.verdict, run.check.reason) == ("match", "")
    assert (run.quantity("build") or 0) > 0
    assert run.notes == ()


def test_a_library_with_which_tvms_tuner_crashes_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundle_of(nn.Linear(4, 2), (torch.randn(2, 4),), tmp_path / "bundle")
    monkeypatch.setattr(exported_program, "version_of", lambda package: "0.1.15.post2")
    with pytest.raises(Unsupported, match="its tuner crashes with apache-tvm-ffi") as raised:
        ladder.choose("tvm:tuned", "infer").level.prepare(bundle, "tuned", tmp_path / "cache")
    assert "\n" not in raised.value.reason


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in ("tvm", "iree")])
def test_it_runs_when_it_is_named(name: str) -> None:
    assert name not in ladder.default("infer", "cpu")


class SinglePixel(nn.Module):
    """A strided convolution whose result is one pixel, as the last ones of ResNet-18 for images of
    32x32. IREE's compiler shapes its padded input wrongly."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 2, 2, 2] -> [batch, 4, 1, 1]"""
        return self.convolution(x)


@needs("iree")
def test_what_irees_compiler_refuses_is_one_line_that_names_the_operator(tmp_path: Path) -> None:
    bundle = bundle_of(SinglePixel(), (torch.randn(2, 2, 2, 2),), tmp_path / "bundle")
    with pytest.raises(Unsupported, match=r"its compiler refuses it: .* \(Conv\)$") as raised:
        ladder.choose("iree", "infer").level.prepare(bundle, "", tmp_path / "cache")
    assert "\n" not in raised.value.reason


@needs("iree")
@pytest.mark.parametrize("fault", ["none", "scaled", "stale"])
def test_an_error_planted_in_iree_is_found(fault: str, cache: Path) -> None:
    _require_found("iree", fault, cache)


def test_tvm_needs_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    probe = ladder.choose("tvm", "infer").level.probe()
    assert not probe.available
    assert (probe.missing, probe.fix) == (compiler.NO_COMPILER, compiler.INSTALL_COMPILER)


# ---------------------------------------------------------------- what they refuse


class Branching(nn.Module):
    """A branch that depends on the values."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same"""
        return x + 1 if x.sum() > 0 else x


class Volumes(nn.Module):
    """ExecuTorch has a convolution, but not of volumes."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(1, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1, depth, height, width] -> [batch, 2, ...]"""
        return self.convolution(x)


@needs("executorch")
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.AvgPool3d(2), "its runtime has no aten::avg_pool3d.out"),
        (Volumes(), "its runtime refuses it: .*0x12"),
    ],
    ids=["missing", "arguments"],
)
def test_what_executorch_has_no_kernel_for_is_refused(
    module: nn.Module, reason: str, tmp_path: Path
) -> None:
    bundle = bundle_of(module, (torch.randn(2, 1, 4, 4, 4),), tmp_path / "bundle")
    with pytest.raises(Unsupported, match=reason):
        ladder.choose("executorch", "infer").level.prepare(bundle, "", tmp_path / "cache")


@each_peer
def test_what_cannot_be_captured_is_refused(name: str, tmp_path: Path) -> None:
    bundle = bundle_of(Branching(), (torch.randn(4, 4),), tmp_path / "bundle")
    with pytest.raises(Unsupported, match=r"torch\.export cannot capture it: ") as raised:
        ladder.choose(name, "infer").level.prepare(bundle, "", tmp_path / "cache")
    assert "\n" not in raised.value.reason


class Counting(nn.Module):
    """A pass changes a buffer, on which no result depends."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same"""
        self.calls += 1
        return x * 2


@each_peer
def test_a_pass_that_counts_matches(name: str, cache: Path) -> None:
    result = golow.compare(
        Counting().eval(), torch.randn(4, 4), levels=[name], threads=1, time_limit=0.1,
        cache=cache, quiet=True,
    )  # fmt: skip
    check = result.run(name).check
    assert (check.verdict, check.reason) == ("match", "")


# ---------------------------------------------------------------- planted errors


@each_peer
@pytest.mark.parametrize("fault", ["none", "scaled", "stale"])
def test_a_planted_error_is_found(name: str, fault: str, cache: Path) -> None:
    _require_found(name, fault, cache)


def _require_found(name: str, fault: str, cache: Path) -> None:
    result = golow.compare(
        nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8)), torch.randn(8, 32),
        levels=["eager"], workers={"planted": [sys.executable, __file__, name, fault, str(cache)]},
        threads=1, time_limit=0.3, quiet=True,
    )  # fmt: skip
    check = result.run("planted").check
    assert check.verdict == ("match" if fault == "none" else "differs"), check.reason
    if fault == "stale":
        assert check.reason.startswith("while it is timed")


def planted(name: str, fault: str, cache: Path) -> ArrayProgram:
    """The level with an error: ``scaled``, outputs times 1.001; ``stale``, timed iterations that
    always take the first batch."""
    level = ladder.choose(name, "infer").level
    program: ArrayProgram = import_module(f"golow.levels.peers.{name}").program("")
    load, results, iterate = program.load, program.results, program.iterate

    def load_exported(bundle: Path) -> LoadReport:
        os.environ.update(level.prepare(Bundle(bundle), "", cache).environment)
        return load(bundle)

    def scaled(index: int) -> list[Array]:
        return [array * np.float32(1.001) for array in results(index)]

    def iterate_on_the_first() -> None:
        at, program.position = program.position, 0
        iterate()
        program.position = at + 1

    program.load = load_exported  # type: ignore[method-assign]
    if fault == "scaled":
        program.results = scaled  # type: ignore[method-assign]
    if fault == "stale":
        program.iterate = iterate_on_the_first  # type: ignore[method-assign]
    return program


if __name__ == "__main__":
    run(lambda: planted(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
