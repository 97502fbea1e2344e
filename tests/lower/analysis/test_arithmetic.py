"""The arithmetic of a graph, counted; and the most that this machine can do."""

from __future__ import annotations

import os
import subprocess
import sys
import timeit
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

from golow.lower.analysis.arithmetic import FASTEST_CONVOLUTION, least_operations, work_by_layer
from golow.measure import peak
from golow.measure.peak import IN_8_BITS, IN_TILES, SLACK, Peak, impossible, measured_peak
from golow.records.quantization import QuantizedLayer
from golow.records.workload import Mode
from golow.storage.cache import write_sealed
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.plants.damages import DAMAGES
from support.workers.forked_workers import fork_commands

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that measure are forked."""
    fork_commands(monkeypatch)


def operations(module: nn.Module, x: torch.Tensor, mode: Mode = "infer") -> float:
    loss = {"loss": "mse_loss"} if mode == "train" else {}
    return least_operations(capture(prepare(Request(module, x, mode=mode, **loss))).graph)


CONV = 2 * (4 * 8 * 14 * 14) * (3 * 3 * 3)


@pytest.mark.parametrize(
    ("module", "shape", "expected"),
    [
        (nn.Linear(32, 16), (8, 32), 2 * 8 * 32 * 16),
        (nn.Linear(32, 16, bias=False), (8, 5, 32), 2 * 40 * 32 * 16),
        (nn.Conv2d(3, 8, 3), (4, 3, 16, 16), CONV / FASTEST_CONVOLUTION),
        (nn.Conv2d(3, 8, 1), (4, 3, 16, 16), 2 * (4 * 8 * 16 * 16) * 3),
        (nn.Conv2d(4, 8, 1, groups=2), (4, 4, 6, 6), 2 * (4 * 8 * 6 * 6) * 2),
        (nn.ConvTranspose2d(8, 3, 3), (4, 8, 5, 5), 2 * (4 * 8 * 25) * 27 / FASTEST_CONVOLUTION),
        (nn.Conv1d(2, 4, 3), (2, 2, 10), 2 * (2 * 4 * 8) * 6 / FASTEST_CONVOLUTION),
        (nn.ReLU(), (8, 32), 0),
    ],
    ids=str,
)
def test_products_and_convolutions_are_counted(
    module: nn.Module, shape: tuple[int, ...], expected: float
) -> None:
    assert operations(module, torch.randn(shape)) == expected


def test_a_training_step_has_three_products_a_layer_but_for_the_first() -> None:
    """The gradient of the inputs is not needed."""
    module = nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 8))
    first, second = 2 * 4 * 32 * 16, 2 * 4 * 16 * 8
    assert operations(module, torch.randn(4, 32), "train") == 2 * first + 3 * second
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1))
    first, second = 2 * 4 * 4 * 36 * 3, 2 * 4 * 2 * 36 * 4
    assert operations(module, torch.randn(4, 3, 6, 6), "train") == 2 * first + 3 * second


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_the_peak_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, and kept; a damaged one is measured anew."""
    monkeypatch.setattr(peak, "SECONDS", 0.05)
    found = measured_peak("cpu", "default", 1, tmp_path)
    assert found is not None
    assert 1e8 < found.operations < 1e14
    assert 1e8 < found.bytes < 1e13
    [file] = (tmp_path / "peak").iterdir()
    known = Peak(operations=7.0, bytes=3.0)
    write_sealed(file, msgspec.json.encode(known))
    assert measured_peak("cpu", "default", 1, tmp_path) == known
    DAMAGES["garbled"](file)
    assert measured_peak("cpu", "default", 1, tmp_path) not in (None, known)


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_a_peak_that_was_exceeded_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken on a busy machine, and would refute an honest level."""
    monkeypatch.setattr(peak, "SECONDS", 0.01)
    found = measured_peak("cpu", "default", 1, tmp_path)
    assert found is not None
    [file] = (tmp_path / "peak").iterdir()
    busy = Peak(operations=7.0, bytes=1e30)
    write_sealed(file, msgspec.json.encode(busy))
    workload = prepare(Request(nn.Linear(4, 4), torch.randn(2, 4), threads=1)).workload
    assert impossible(1e6, 1.0, workload, tmp_path) == ""
    again = measured_peak("cpu", "default", 1, tmp_path)
    assert again is not None
    assert again.operations > 1e6
    assert again.bytes == 1e30


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_a_peak_taken_on_busy_cores_refutes_no_honest_time(tmp_path: Path) -> None:
    """Other processes spin on every core while it is measured; the time is a real one."""
    x, threads = torch.randn(256, 256), 2
    workload = prepare(Request(nn.Linear(256, 256), x, threads=threads)).workload
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    seconds = min(timeit.repeat(lambda: x @ x, number=1, repeat=1000))
    torch.set_num_threads(before)
    with spinning(os.cpu_count() or 1):
        assert impossible(2.0 * 256**3, seconds, workload, tmp_path) == ""


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many processes that do nothing, without a pause."""
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            for _ in range(count)]  # fmt: skip
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_what_the_peak_does_not_allow_is_impossible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "SECONDS", 0.05)
    workload = prepare(Request(nn.Linear(4, 4), torch.randn(2, 4), threads=1)).workload
    measured = measured_peak("cpu", "default", 1, tmp_path)
    assert measured is not None
    least = 1e9 / measured.operations / SLACK
    assert impossible(1e9, 1.01 * least, workload, tmp_path) == ""
    assert "its time is impossible" in impossible(1e9, 0.01 * least, workload, tmp_path)


@pytest.mark.parametrize(
    ("flags", "gain"), [(("avx512_vnni",), IN_8_BITS), (("amx_int8",), IN_TILES)]
)
def test_8_bits_may_exceed_the_peak_of_floats(
    flags: tuple[str, ...], gain: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peak is planted: no machine of a test has all kinds of arithmetic."""
    machine = msgspec.structs.replace(peak.environment(), cpu_flags=flags)
    monkeypatch.setattr(peak, "environment", lambda: machine)
    monkeypatch.setattr(peak, "measured_peak", lambda *_: Peak(operations=1e9, bytes=1e9))
    workload = prepare(Request(nn.Linear(4, 4), torch.randn(2, 4), threads=1)).workload
    layers = (QuantizedLayer(path="", rule="int8"),)
    source = msgspec.structs.replace(workload.source, quantized=layers)
    quantized = msgspec.structs.replace(workload, source=source)
    least = 1 / SLACK / gain
    assert impossible(1e9, 1.01 * least, quantized, tmp_path) == ""
    assert "its time is impossible" in impossible(1e9, 0.99 * least, quantized, tmp_path)
    assert "its time is impossible" in impossible(1e9, 1.01 * least, workload, tmp_path)


class Two(nn.Module):
    """A layer of two operations, whose first result nobody else reads, and another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU())
        self.second = nn.Linear(16, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def test_a_layers_work_is_its_own() -> None:
    graph = capture(prepare(Request(Two(), torch.randn(3, 8)))).graph
    found = {(work.module, work.phase): work for work in work_by_layer(graph)}
    linear = found["first.0", "forward"]
    assert linear.operations == 2 * 3 * 8 * 16
    assert linear.bytes == 4 * (3 * 8 + 16 * 8 + 3 * 16)
    assert found["first.1", "forward"].operations == 0
    assert found["first.1", "forward"].bytes == 4 * 2 * 3 * 16
    assert found["second", "forward"].bytes == 4 * (3 * 16 + 16 * 4 + 3 * 4)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_layers_add_up_to_the_graph(mode: Mode) -> None:
    """A network without convolutions, for which no algorithm is faster."""
    loss = {"loss": "mse_loss"} if mode == "train" else {}
    graph = capture(prepare(Request(Two(), torch.randn(3, 8), mode=mode, **loss))).graph
    total = sum(work.operations for work in work_by_layer(graph))
    assert total == least_operations(graph) > 0
    assert all(work.bytes > 0 for work in work_by_layer(graph))
