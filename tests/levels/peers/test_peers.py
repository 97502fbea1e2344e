"""The peer runtimes on a CPU: real workers on models that are really exported. What only one of
them does is in `test_peers_apart.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.levels import ladder
from golow.levels.peers import exported_program
from golow.records.errors import Unsupported
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.bundles import network_bundle
from support.workers.conformance import CHECKS, ENDINGS, dies_with_its_parent
from support.workers.conversation import Conversation, Subject
from support.workers.workers_kept import kept_loaded, require_threads

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]

NAMES = ("onnxruntime", "openvino", "executorch", "tvm", "iree")
PEERS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not ladder.choose(name, "infer").level.probe().available,
            reason=f"the extra golow[{name}] is not installed",
        ),
    )
    for name in NAMES
]
each_peer = pytest.mark.parametrize("name", PEERS)


def all_but(*others: str) -> pytest.MarkDecorator:
    """For what is not true of some peers; `test_peers_apart.py` says what is."""
    kept = [peer for peer in PEERS if peer.values[0] not in others]
    return pytest.mark.parametrize("name", kept)


# Where all go through the same code of golow's, one of them is enough for every day.
FIRST, *OTHERS = PEERS
exporting_peer = pytest.mark.parametrize(
    "name",
    [
        FIRST,
        *(pytest.param(*p.values, marks=[*p.marks, pytest.mark.whole_network]) for p in OTHERS),
    ],
)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles and exported models of this session are stored."""
    return tmp_path_factory.mktemp("peers")


def make_subject(name: str, workshop: Path, threads: int = 1) -> Subject:
    folder = workshop / f"bundle-{threads}"
    if not folder.exists():
        # Iterations of some milliseconds where two threads should be seen at work.
        network_bundle(folder, "infer", threads=threads, batch=8 if threads == 1 else 512)
    return subject_of(name, Bundle(folder), workshop / "cache")


def subject_of(name: str, bundle: Bundle, cache: Path) -> Subject:
    launch = ladder.choose(name, "infer").level.prepare(bundle, "", cache)
    threads = bundle.workload.threads
    environment = worker_environment(launch.command[0], threads, launch.environment)
    return Subject(launch.command, environment, bundle)


# ---------------------------------------------------------------- the protocol


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest, workshop: Path) -> Iterator[Callable[[], Conversation]]:
    """One process for all checks of a worker, and another once it has ended."""
    with kept_loaded(make_subject(request.param, workshop)) as conversation:
        yield conversation


@pytest.mark.parametrize("loaded", PEERS, indirect=True)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_peer_conforms(
    loaded: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(loaded())


@each_peer
@pytest.mark.parametrize("check", ENDINGS, ids=lambda check: check.__name__)
def test_a_peer_ends(name: str, check: Callable[[Subject], None], workshop: Path) -> None:
    check(make_subject(name, workshop))


@each_peer
def test_a_peer_at_work_dies_with_its_parent(name: str, workshop: Path) -> None:
    dies_with_its_parent(make_subject(name, workshop), at_work=True)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
@all_but("tvm")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_peer_runs_with_the_threads_that_golow_states(
    name: str, threads: int, workshop: Path
) -> None:
    require_threads(make_subject(name, workshop, threads), threads, iterations=300)


@each_peer
def test_a_peer_leaves_nothing_in_the_users_home(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the packages come with telemetry, which keeps its identifier and its queue there."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with Conversation(make_subject(name, tmp_path)) as worker:
        worker.load()
        worker.time(10, 0)
    assert list(home.rglob("*")) == []


@each_peer
def test_a_worker_refuses_a_bundle_that_was_not_exported(
    name: str, workshop: Path, tmp_path: Path
) -> None:
    """It has one exported model, and says so instead of running that on other weights."""
    other = write_bundle(prepare(Request("mlp", batch=2)), tmp_path / "other")[0]
    with Conversation(make_subject(name, workshop)) as worker:
        answer = worker.ask(do="load", bundle=str(other.folder))
        assert (answer["ok"], answer["error"]) == (False, "failed")
        assert "exported for a different workload" in answer["message"]
        worker.load()


# ---------------------------------------------------------------- without PyTorch

IMPORTED = """
import sys
from pathlib import Path
from golow.levels.peers.{name} import program
program("").load(Path({folder!r}))
held = [m for m, module in sys.modules.items() if module is not None]
wrong = [m for m in held if m.partition(".")[0] in ("torch", "psutil", "scipy")]
assert not wrong, wrong
"""


@all_but("executorch")
def test_there_is_no_torch_in_the_worker(name: str, workshop: Path) -> None:
    """Neither as a Python module nor as a library in its memory."""
    subject = make_subject(name, workshop)
    code = IMPORTED.format(name=name, folder=str(subject.bundle.folder))
    environment = {**os.environ, **subject.environment}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    with Conversation(subject) as worker:
        worker.load()
        worker.time(2, 0)
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
    assert name in maps  # the runtime's own library is there
    assert "libtorch" not in maps
    assert "-packages/torch/" not in maps


# ---------------------------------------------------------------- the numbers


@pytest.mark.whole_network
@each_peer
@pytest.mark.parametrize(
    ("model", "batch", "resolution"),
    [
        ("lenet5", 4, None),
        ("resnet18", 2, 64),
        ("mobilenet_v2", 2, 64),
    ],
)
def test_a_model_of_the_zoo_matches(
    name: str, model: str, batch: int, resolution: int | None, workshop: Path
) -> None:
    result = golow.compare(
        model,
        levels=[name],
        batch=batch,
        resolution=resolution,
        threads=1,
        time_limit=0.1,
        cache=workshop / "cache",
    )
    run = result.run(name)
    assert (run.check.verdict, run.check.reason) == ("match", "")
    assert run.time is not None
    weights = 4 * run.workload.parameters
    code = 2**20 if name in ("tvm", "iree") else 0
    assert 0.8 * weights < (run.quantity("artifact") or 0) < 1.2 * weights + code
    assert (run.quantity("build") or 0) > 0
    assert run.quantity("allocated_peak") is None  # it does not tell


@pytest.mark.whole_network
@each_peer
def test_adaptive_pooling_that_does_not_divide_matches(name: str, workshop: Path) -> None:
    """As AlexNet has it for small pictures."""
    layers = nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(144, 5)
    result = golow.compare(
        nn.Sequential(*layers).eval(), torch.randn(2, 3, 11, 11), levels=[name], threads=1,
        time_limit=0.1, cache=workshop / "cache",
    )  # fmt: skip
    run = result.run(name)
    assert (run.check.verdict, run.check.reason) == ("match", "")


class Nested(nn.Module):
    """Three inputs, one of them integers and one unused; outputs in a tree, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.linear = nn.Linear(4, 3)

    def forward(self, unused: Tensor, x: Tensor, tokens: Tensor) -> dict[str, object]:
        """[batch, 4], [batch, 4] and [batch] -> a dictionary with a tuple inside"""
        y = self.linear(x + self.embedding(tokens))
        return {"z": y, "a": (y.relu(), tokens), "twice": y, "total": y.sum()}


@exporting_peer
def test_several_inputs_and_a_tree_of_outputs(name: str, workshop: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(4, 4), torch.randn(4, 4), torch.randint(0, 10, (4,)))
    module = Nested().eval()
    bundle = write_bundle(prepare(Request(module, inputs, threads=1)), tmp_path / "bundle")[0]
    with Conversation(subject_of(name, bundle, workshop / "cache")) as worker:
        worker.load()
        found = worker.outputs(0)
    batch = _batch(bundle, 0)
    with torch.no_grad():
        y = module(*batch)["z"]
    expected = [y, y.relu(), batch[2], y, y.sum()]
    assert set(found) == {f"0/output/{i}" for i in range(5)}
    for position, tensor in enumerate(expected):
        got = found[f"0/output/{position}"]
        assert got.shape == tuple(tensor.shape)
        assert torch.allclose(torch.from_numpy(got), tensor.double(), atol=1e-6)


def _batch(bundle: Bundle, index: int) -> list[Tensor]:
    from safetensors.torch import load_file

    tensors = load_file(bundle.file("batches.safetensors"))
    return [tensors[f"{index}/input/{i}"] for i in range(len(bundle.workload.inputs))]


# ---------------------------------------------------------------- the export


@each_peer
def test_an_export_is_done_once(name: str, workshop: Path, tmp_path: Path) -> None:
    subject = make_subject(name, workshop)
    level = ladder.choose(name, "infer").level
    made = level.prepare(subject.bundle, "", tmp_path)
    found = level.prepare(subject.bundle, "", tmp_path)
    assert (made.cached, found.cached) == (False, True)
    assert found == made._replace(cached=True)
    assert made.build_seconds > 0
    assert len(list((tmp_path / name).iterdir())) == 1
    # What a killed export leaves is no finished one.
    [folder] = (tmp_path / name).iterdir()
    (folder / exported_program.REPORT).unlink()
    assert level.prepare(subject.bundle, "", tmp_path).cached is False


class Bessel(nn.Module):
    """An operation that no exporter knows."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same"""
        return torch.special.bessel_j0(x)


@exporting_peer
def test_an_operation_that_cannot_be_exported_is_named(name: str, tmp_path: Path) -> None:
    bundle = write_bundle(prepare(Request(Bessel(), torch.randn(4, 4))), tmp_path / "bundle")[0]
    with pytest.raises(Unsupported, match="bessel_j0") as raised:
        ladder.choose(name, "infer").level.prepare(bundle, "", tmp_path / "cache")
    assert len(raised.value.reason) < 300
    assert "\n" not in raised.value.reason
    assert list((tmp_path / "cache" / name).iterdir()) == []


class Differences(nn.Module):
    """OpenVINO's converter has no rule for aten::diff; torch.export unfolds it. So do GPT-2, Llama
    and Whisper of transformers for their masks."""

    def forward(self, x: Tensor) -> Tensor:
        """[batch, n] -> [batch, n]"""
        return x.diff(prepend=x.sum(1, keepdim=True))


@pytest.mark.parametrize("name", [one for one in PEERS if one.values == ("openvino",)])
def test_what_openvino_cannot_trace_it_takes_from_an_export(name: str, workshop: Path) -> None:
    result = golow.compare(
        Differences(), torch.randn(2, 7), levels=[name], threads=1, time_limit=0.1,
        cache=workshop / "cache", quiet=True,
    )  # fmt: skip
    assert (result.run(name).check.verdict, result.run(name).check.reason) == ("match", "")


DEADLY = """
import os, signal
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if torch.jit.is_tracing() or torch.compiler.is_exporting():
            print("the exporter is about to die", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return x + 1
"""


@each_peer
def test_an_exporter_that_dies_is_a_failure_with_its_log(name: str, tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    bundle = write_bundle(
        prepare(Request(f"{tmp_path / 'deadly.py'}:Net", batch=2, input_shape=(4,))),
        tmp_path / "bundle",
    )[0]
    with pytest.raises(golow.GolowError, match="ended with status -9") as raised:
        ladder.choose(name, "infer").level.prepare(bundle, "", tmp_path / "cache")
    assert "the exporter is about to die" in raised.value.message
    [left] = (tmp_path / "cache" / name).iterdir()
    assert left.name == "logs"


# ---------------------------------------------------------------- where it cannot run


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_named_with_what_mends_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = exported_program.find_spec

    def without(package: str) -> ModuleSpec | None:
        return None if package in (*NAMES, "onnxscript") else present(package)

    monkeypatch.setattr(exported_program, "find_spec", without)
    probe = ladder.choose(name, "infer").level.probe()
    assert not probe.available
    assert probe.missing.startswith(name)
    assert "not installed" in probe.missing
    assert probe.fix == f"pip install 'golow[{name}]'"
    assert not set(NAMES) & set(ladder.default("infer", "cpu"))


@pytest.mark.parametrize("name", NAMES)
def test_training_is_refused(name: str) -> None:
    with pytest.raises(golow.GolowError, match=f"{name} is for infer only, not for train"):
        golow.compare("lenet5", mode="train", levels=["eager", name])
    assert name not in ladder.default("train", "cpu")


@all_but("tvm", "iree")
def test_an_installed_peer_runs_by_default(name: str) -> None:
    """In the ladder's order."""
    found = ladder.default("infer", "cpu")
    assert found.index("compile:freezing") < found.index(name) < found.index("libtorch")


def test_a_probe_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom golow.levels.ladder import LADDER\nfor level in LADDER: level.probe()\n"
        "assert not {'torch', 'onnxruntime', 'openvino', 'onnx', 'executorch', 'tvm', 'iree'} "
        "& set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
