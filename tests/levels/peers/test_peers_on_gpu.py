"""The peers that run on a GPU, as far as this needs none: what is missing, what is refused, and the
program itself on the host's memory."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import golow
from golow.levels import gpu, ladder
from golow.levels.peers import exported_program, onnxruntime, tensorrt
from golow.records.errors import Unsupported
from golow.records.record import encode
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.places import ROOT, SUPPORT
from support.workers.bundles import network_bundle
from support.workers.conformance import CHECKS, ENDINGS
from support.workers.conversation import Conversation, Subject
from support.workers.workers_kept import kept_loaded

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]

ONNXRUNTIME = ladder.choose("onnxruntime", "infer", "cuda").level
TENSORRT = ladder.choose("tensorrt", "infer", "cuda").level
needs_exporter = pytest.mark.skipif(
    not ONNXRUNTIME.probe().available, reason="the extra golow[onnxruntime] is not installed"
)


def on_host(bundle: Bundle, cache: Path, fault: str = "none") -> Subject:
    """The program for a GPU on the host's memory."""
    launch = ONNXRUNTIME.prepare(bundle, "", cache)
    command = (sys.executable, str(SUPPORT / "workers" / "host_device.py"), fault)
    return Subject(command, worker_environment(command[0], 1, launch.environment), bundle)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("on-gpu")


@pytest.fixture(scope="module")
def bundle(workshop: Path) -> Bundle:
    return network_bundle(workshop / "bundle", "infer", threads=1, batch=8)


# ---------------------------------------------------------------- the program


@pytest.fixture(scope="module")
def loaded(workshop: Path, bundle: Bundle) -> Iterator[Callable[[], Conversation]]:
    with kept_loaded(on_host(bundle, workshop / "cache")) as conversation:
        yield conversation


@needs_exporter
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_program_conforms(
    loaded: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(loaded())


@needs_exporter
@pytest.mark.parametrize("check", ENDINGS, ids=lambda check: check.__name__)
def test_the_program_ends(check: Callable[[Subject], None], workshop: Path, bundle: Bundle) -> None:
    check(on_host(bundle, workshop / "cache"))


@needs_exporter
@pytest.mark.parametrize("fault", ["marks", "upload", "aside"])
def test_an_error_in_the_devices_memory_is_found(
    fault: str, workshop: Path, bundle: Bundle
) -> None:
    with Conversation(on_host(bundle, workshop / "cache", fault)) as worker:
        worker.load()
        with pytest.raises(AssertionError):
            _run_all(worker)


def _run_all(worker: Conversation) -> None:
    for check in CHECKS:
        check(worker)


class Several(nn.Module):
    """Floats, integers and an unused input; outputs of three types, one a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(10, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, unused: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        """[batch, 4], [batch, 4] and [batch] -> [batch, 3], [batch], [], and bools"""
        y = self.linear(x + self.embedding(tokens))
        return y, tokens + 1, y.sum(), y > 0


@needs_exporter
def test_inputs_and_outputs_of_every_type_keep_their_places(workshop: Path) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4, 4), torch.randn(4, 4), torch.randint(0, 10, (4,))
    module = Several().eval()
    bundle = write_bundle(prepare(Request(module, inputs, threads=1)), workshop / "several")[0]
    with Conversation(on_host(bundle, workshop / "cache")) as worker:
        worker.load()
        found = worker.outputs(0)
    from safetensors.torch import load_file

    batch = load_file(bundle.file("batches.safetensors"))
    with torch.no_grad():
        expected = module(*(batch[f"0/input/{i}"] for i in range(3)))
    for position, tensor in enumerate(expected):
        got = found[f"0/output/{position}"]
        assert got.shape == tuple(tensor.shape)
        np.testing.assert_allclose(got, tensor.double().numpy(), atol=1e-6)


# ---------------------------------------------------------------- TensorRT's export


@needs_exporter
def test_tensorrt_exports_the_model_and_builds_when_it_loads(
    workshop: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export is that of ONNX Runtime, which computes eager's numbers from it on the CPU."""
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(tensorrt, "version", without())
    launch = TENSORRT.prepare(bundle, "", workshop / "cache")
    assert launch.command[-1] == "golow.levels.peers.tensorrt"
    assert launch.build_measures and launch.built_by_loading is not None
    assert launch.built_by_loading.parent == Path(launch.environment[exported_program.ENGINES])
    folder = Path(launch.environment[exported_program.VARIABLE])
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    assert {node.type for node in (*session.get_inputs(), *session.get_outputs())} == {
        "tensor(float)"
    }
    other = TENSORRT.prepare(bundle, "", workshop / "cache")
    assert other == launch
    monkeypatch.setattr(tensorrt, "version", lambda name: "another")
    newer = TENSORRT.prepare(bundle, "", workshop / "cache")
    assert newer.built_by_loading != launch.built_by_loading


class Bessel(nn.Module):
    """An operation that the exporter does not know."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same"""
        return torch.special.bessel_j0(x)


@needs_exporter
@pytest.mark.whole_network
def test_tensorrt_names_an_operation_that_cannot_be_exported(
    workshop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt, "version", without())
    prepared = prepare(Request(Bessel(), torch.randn(4, 4), threads=1))
    bundle = write_bundle(prepared, workshop / "bessel")[0]
    with pytest.raises(Unsupported, match="bessel_j0") as raised:
        TENSORRT.prepare(bundle, "", workshop / "cache")
    assert raised.value.level == "tensorrt"


def test_tensorrt_trains_nothing_and_runs_on_no_cpu() -> None:
    with pytest.raises(golow.GolowError, match="tensorrt is for infer only, not for train"):
        ladder.choose("tensorrt", "train", "cuda")
    with pytest.raises(golow.GolowError, match="tensorrt runs on cuda only, not on cpu"):
        ladder.choose("tensorrt", "infer", "cpu")


# ---------------------------------------------------------------- what is missing


def without(*distributions: str) -> Callable[[str], str]:
    """The versions of distributions, as if these were not installed."""

    def version(name: str) -> str:
        if name in distributions:
            raise PackageNotFoundError(name)
        return "1.0"

    return version


@needs_exporter
@pytest.mark.parametrize(
    ("level", "extra", "distributions"),
    [
        (ONNXRUNTIME, "onnxruntime-gpu", onnxruntime.CUDA_PACKAGES),
        (TENSORRT, "tensorrt", tensorrt.DISTRIBUTIONS),
    ],
    ids=["onnxruntime", "tensorrt"],
)
def test_each_missing_part_is_named_with_its_command(
    level: ladder.Level,
    extra: str,
    distributions: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    assert level.probe_on("cuda").missing == "there is no NVIDIA GPU"
    monkeypatch.setattr(gpu, "has_gpu", lambda: True)
    for name in distributions:
        monkeypatch.setattr(exported_program, "version", without(name))
        found = level.probe_on("cuda")
        assert (found.available, found.missing) == (False, f"{name} is not installed")
        assert found.fix == f"pip install 'golow[{extra}]'"
    monkeypatch.setattr(exported_program, "version", without())
    assert level.probe_on("cuda").available


def test_the_extras_bring_what_the_probes_look_for() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = found["project"]["optional-dependencies"]
    for extra, distributions in (
        ("onnxruntime-gpu", onnxruntime.CUDA_PACKAGES),
        ("tensorrt", tensorrt.DISTRIBUTIONS),
    ):
        assert {*distributions} <= {re.split("[<>=]", wanted)[0] for wanted in extras[extra]}


def test_nobodys_level_runs_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level that nobody has run on a GPU runs there only when it is named."""
    monkeypatch.setattr(gpu, "has_gpu", lambda: True)
    monkeypatch.setattr(exported_program, "version", without())
    monkeypatch.setattr(exported_program, "find_spec", lambda name: object())
    unseen = [level.name for level in ladder.LADDER if "cuda" in level.unseen]
    assert {"onnxruntime", "tensorrt"} <= {*unseen}
    assert not {*unseen} & {*ladder.default("infer", "cuda")}
    assert "onnxruntime" in ladder.default("infer", "cpu")


def test_the_list_of_levels_says_what_is_unseen() -> None:
    command = [sys.executable, "-m", "golow", "levels"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    unseen = [level.name for level in ladder.LADDER if level.unseen]
    assert done.stdout.count("(never tested") == len(unseen)


def test_half_precision_is_refused_before_the_export(workshop: Path) -> None:
    module, inputs = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    prepared = prepare(Request(module, inputs, threads=1))
    bundle = write_bundle(prepared, workshop / "half")[0]
    workload = msgspec.structs.replace(bundle.workload, precision="bf16")
    (bundle.folder / "workload.json").write_bytes(encode(workload))
    for level in (ONNXRUNTIME, TENSORRT):
        with pytest.raises(Unsupported, match="in float32, not in bf16; use --precision default"):
            level.prepare(Bundle(bundle.folder), "", workshop / "cache")
