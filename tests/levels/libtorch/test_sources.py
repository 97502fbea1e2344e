"""The static C++ of the level libtorch, tried through the worker: hostile files and lines."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from golow.levels.libtorch.build import build
from golow.lower.capture.capture import capture_inference
from golow.programs.profiling.allocations import memory_of_trace
from golow.programs.profiling.places import Place, Places
from golow.programs.profiling.trace import OPERATOR, read_trace
from support.examples import examples
from support.one_run import program_cache
from support.workers.libtorch_bundle import Batch, workload, write_bundle
from support.workers.protocol_driver import RawWorker

pytestmark = pytest.mark.slow

# Text that is not a request must be answered all the same, with one line.
ANY_FAILURE = {"failed", "unknown_request"}
KNOWN = "quit load outputs time memory layers profile count epoch save restore predict".split()


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    captured = capture_inference("linear", Linear(), (torch.randn(2, 3),))
    return build(captured.graph, program_cache(tmp_path_factory.getbasetemp())).program


@pytest.fixture(scope="module")
def worker(program: Path) -> Iterator[RawWorker]:
    """One process for all of these tests: none of them may end it."""
    with RawWorker([program]) as worker:
        yield worker
        assert worker.request(do="quit") == {"ok": True}
        assert worker.process.wait(10) == 0


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    module = Linear()
    batches: list[Batch] = [(torch.randn(2, 3), torch.zeros(2)) for _ in range(2)]
    captured = capture_inference("linear", module, (batches[0][0],))
    return write_bundle(tmp_path / "bundle", module, captured, workload("infer", batches), batches)


def refusal(worker: RawWorker, bundle: Path) -> str:
    """The message with which the worker refuses the bundle; it must stay alive."""
    answer = worker.request(do="load", bundle=str(bundle))
    assert answer["ok"] is False
    assert answer["error"] == "failed"
    return str(answer["message"])


# ---------------------------------------------------------------- the protocol


def test_a_whole_conversation(worker: RawWorker, bundle: Path, tmp_path: Path) -> None:
    loaded = worker.request(do="load", bundle=str(bundle))
    assert loaded["ok"]
    assert loaded["phases"]["load"] > 0
    assert loaded["artifact_bytes"] > 10_000
    timed = worker.request(do="time", iterations=5, warmup=1)
    assert len(timed["host_ns"]) == 5
    assert all(ns > 0 for ns in timed["host_ns"])
    assert timed["device_ns"] is None
    assert isinstance(timed["last"], float)
    file = tmp_path / "o.safetensors"
    asked = {"batches": [1, 0, 1], "learning_rate": 0.1, "file": str(file)}
    assert worker.request(do="outputs", **asked) == {"ok": True}
    assert sorted(load_file(file)) == ["0/output/0", "1/output/0", "2/output/0"]
    assert worker.request(do="memory")["allocated_peak"] >= 16


def test_its_profile_has_layers_operators_and_memory(
    worker: RawWorker, bundle: Path, tmp_path: Path
) -> None:
    """By PyTorch's own profiler, from C++: as in a process with Python."""
    worker.request(do="load", bundle=str(bundle))
    file = tmp_path / "trace.json"
    assert worker.request(do="profile", iterations=3, file=str(file)) == {"ok": True}
    trace = read_trace(file)
    assert len(trace.steps) == 3
    places = Places(trace)
    found = {places.of(e) for e in trace.in_steps(OPERATOR) if e.name in ("aten::addmm", "aten::t")}
    assert found == {Place("head", "forward")}
    memory = memory_of_trace(trace, on_device=False)
    held = {b.name: b.bytes for b in memory.blocks if b.category == "parameters"}
    assert held == {"head.weight": 4 * 6, "head.bias": 4 * 2}
    inputs = sum(b.bytes for b in memory.blocks if b.category == "inputs")
    assert inputs == 2 * 4 * 6
    assert worker.request(do="profile", iterations=0, file=str(file))["error"] == "failed"


def test_batches_rotate_from_request_to_request(worker: RawWorker, bundle: Path) -> None:
    worker.request(do="load", bundle=str(bundle))
    seen = [worker.request(do="time", iterations=1, warmup=0)["last"] for _ in range(4)]
    assert seen[0] == seen[2] != seen[1] == seen[3]


def test_a_result_that_is_no_number_is_null(worker: RawWorker, bundle: Path) -> None:
    weights = load_file(bundle / "weights.safetensors")
    weights["head.bias"].fill_(math.nan)
    save_file(weights, bundle / "weights.safetensors")
    worker.request(do="load", bundle=str(bundle))
    assert worker.request(do="time", iterations=1, warmup=0)["last"] is None


def test_it_ends_when_its_input_closes(program: Path) -> None:
    with RawWorker([program]) as worker:
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        assert worker.process.wait(10) == 0


def test_what_it_does_not_know_is_said(worker: RawWorker) -> None:
    answer = worker.request(do="dance")
    assert answer["error"] == "unknown_request"
    assert "dance" in answer["message"]


def test_before_load_there_is_nothing_to_run(program: Path, tmp_path: Path) -> None:
    with RawWorker([program]) as worker:
        for request in ({"do": "memory"}, {"do": "time", "iterations": 1, "warmup": 0}):
            assert worker.request(**request)["message"] == "nothing is loaded yet"


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "time", "iterations": 0, "warmup": 0},
        {"do": "time", "iterations": 1, "warmup": -1},
        {"do": "time", "iterations": 1.5, "warmup": 0},
        {"do": "time", "iterations": 1},
        {"do": "outputs", "batches": [2], "learning_rate": 0.1, "file": "/tmp/x"},
        {"do": "outputs", "batches": [-1], "learning_rate": 0.1, "file": "/tmp/x"},
        {"do": "outputs", "batches": [0], "learning_rate": 0.1, "file": "/no/such/folder/x"},
        {"do": "outputs", "batches": [0], "file": "/tmp/x"},
        {"do": 7},
        {"bundle": "x"},
        {"do": "load", "bundle": "/no/such/folder"},
        {"do": "load", "bundle": "/dev"},
    ],
)
def test_requests_that_make_no_sense_are_answered(
    worker: RawWorker, bundle: Path, request_: dict[str, object]
) -> None:
    worker.request(do="load", bundle=str(bundle))
    answer = worker.request(**request_)
    assert answer["ok"] is False
    assert answer["error"] == "failed"
    assert answer["message"]
    assert {"node", "module"} <= set(answer)


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"{",
        b'{"do": "quit"',
        b'{"do": "quit"} x',
        b'{"do": "quit", "do": "quit"}',
        b'{"do": "quit",}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"do": "\xff\xfe"}',
        b'{"do": "\\ud800"}',
        b'{"do": "\\u12"}',
        b'{"do": 01}',
        b'{"do": 1e999}',
        b"\x00\x01\x02",
        b"null",
        b"[1, 2",
        b'{"do": nul}',
        b'{"do": "a\tb"}',
    ],
)
def test_lines_that_are_no_requests_are_answered(worker: RawWorker, line: bytes) -> None:
    answer = worker.line(line)
    assert answer["ok"] is False
    assert answer["error"] in ANY_FAILURE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200).filter(lambda data: b"\n" not in data))
def test_any_bytes_are_answered(worker: RawWorker, data: bytes) -> None:
    assert worker.line(data)["ok"] is False


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
# A message is a C string in between, which ends at a NUL.
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), json_values)
def test_whatever_python_writes_is_read(worker: RawWorker, name: str, extra: object) -> None:
    # The name comes back in the message, through the reader and the writer.
    if name in KNOWN:
        return
    text = json.dumps({"do": name, "extra": extra}, allow_nan=False) if finite(extra) else None
    if text is None or "\\ud" in text.lower():
        return
    answer = worker.line(text.encode())
    assert answer["error"] == "unknown_request"
    assert answer["message"] == f"this worker does not know the request {name}"


def finite(item: object) -> bool:
    if isinstance(item, float):
        return math.isfinite(item)
    if isinstance(item, dict):
        return all(finite(value) for value in item.values())
    if isinstance(item, list):
        return all(finite(value) for value in item)
    return True


def test_characters_beyond_the_first_plane_are_read(worker: RawWorker) -> None:
    assert "\N{GRINNING FACE}" in worker.line(b'{"do": "\\ud83d\\ude00"}')["message"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[: len(text) // 2], "not valid JSON"),
        (lambda text: text.replace('"mode"', '"mood"'), 'no "mode"'),
        (lambda text: text.replace('"infer"', '"dream"'), "no mode dream"),
        (lambda text: text.replace('"infer"', '"train"'), "another mode"),
        (lambda text: text.replace('"batches": 2', '"batches": 3'), "no batch 2"),
        (lambda text: text.replace('"batches": 2', '"batches": -4'), "no batches"),
        (lambda text: text.replace('"batches": 2', '"batches": 1e30'), "expected an integer"),
        (lambda text: text.replace('"batches": 2', '"batches": 10' + "0" * 17), "no batch 2"),
        (lambda text: "[]", "expected an object"),
    ],
)
def test_a_damaged_workload_is_refused(
    worker: RawWorker, bundle: Path, change: object, reason: str
) -> None:
    path = bundle / "workload.json"
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    assert reason in refusal(worker, bundle)


# ---------------------------------------------------------------- safetensors


def safetensors_file(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"head.bias": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cut off"),
        (b"1234567", "cut off"),
        (struct.pack("<Q", 2**63) + b"{}", "cut off"),
        (struct.pack("<Q", 3) + b"{}", "cut off"),
        (safetensors_file(b"{} x"), "not valid JSON"),
        (safetensors_file(b"[]"), "expected an object"),
        (safetensors_file({"a": 3}), "expected an object"),
        (safetensors_file({"a": {}}), 'no "dtype"'),
        (safetensors_file(entry(dtype="F128"), bytes(8)), "unknown dtype"),
        (safetensors_file(entry(shape=[-2]), bytes(8)), "negative"),
        (safetensors_file(entry(shape=[2**62, 8]), bytes(8)), "too large"),
        (safetensors_file(entry(shape=[2**62, 0]), bytes(8)), "too large"),
        (safetensors_file(entry(shape=[2**40], offsets=[0, 2**42]), bytes(8)), "not as long"),
        (safetensors_file(entry(offsets=[8, 0]), bytes(8)), "do not fit"),
        (safetensors_file(entry(offsets=[-8, 0]), bytes(8)), "do not fit"),
        (safetensors_file(entry(offsets=[-(2**63), 2**63 - 1]), bytes(8)), "do not fit"),
        (safetensors_file(entry(offsets=[0]), bytes(8)), "two offsets"),
        (safetensors_file(entry(offsets=[8, 16]), bytes(16)), "hole"),
        (safetensors_file(entry(), bytes(4)), "not as long"),
        (safetensors_file(entry(), bytes(12)), "not as long"),
        (safetensors_file(entry(shape=2), bytes(8)), "expected an array"),
        (safetensors_file(entry(), bytes(8)), "no tensor head.weight"),
    ],
)
def test_a_damaged_weights_file_is_refused(
    worker: RawWorker, bundle: Path, content: bytes, reason: str
) -> None:
    path = bundle / "weights.safetensors"
    path.write_bytes(content)
    message = refusal(worker, bundle)
    assert reason in message
    assert str(path) in message


def test_every_truncation_is_refused(worker: RawWorker, bundle: Path) -> None:
    path = bundle / "weights.safetensors"
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert refusal(worker, bundle)


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_flipped_byte_never_ends_the_worker(
    worker: RawWorker, bundle: Path, position: int, byte: int
) -> None:
    path = bundle / "weights.safetensors"
    whole = path.read_bytes()
    index = position % len(whole)
    path.write_bytes(whole[:index] + bytes([byte]) + whole[index + 1 :])
    try:
        if worker.request(do="load", bundle=str(bundle))["ok"]:
            worker.request(do="time", iterations=1, warmup=0)
    finally:
        path.write_bytes(whole)


def test_weights_of_another_shape_are_an_error_of_the_step(worker: RawWorker, bundle: Path) -> None:
    save_file(
        {"head.weight": torch.zeros(2, 4), "head.bias": torch.zeros(2)},
        bundle / "weights.safetensors",
    )
    worker.request(do="load", bundle=str(bundle))
    answer = worker.request(do="time", iterations=1, warmup=0)
    assert answer["error"] == "failed"
    assert "shapes cannot be multiplied" in answer["message"]
    assert "Exception raised from" not in answer["message"]


DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def test_the_writer_holds_every_dtype_that_the_reader_reads(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    class Through(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for index, dtype in enumerate(DTYPES):
                tensor = torch.arange(3 + index).to(dtype)
                self.register_buffer(f"b{index}", tensor if index % 2 else tensor[0])

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            own = (getattr(self, f"b{index}").clone() for index in range(len(DTYPES)))
            return x.reshape(-1)[:0].clone(), *own

    module = Through()
    batches: list[Batch] = [(torch.randn(2, 3), torch.zeros(2))]
    captured = capture_inference("through", module, (batches[0][0],))
    cache = program_cache(tmp_path_factory.getbasetemp())
    described = workload("infer", batches)
    bundle = write_bundle(tmp_path / "bundle", module, captured, described, batches)
    file = tmp_path / "o.safetensors"
    with RawWorker([build(captured.graph, cache).program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
        asked = {"batches": [0], "learning_rate": 0.1, "file": str(file)}
        assert worker.request(do="outputs", **asked) == {"ok": True}
        assert worker.request(do="time", iterations=1, warmup=0)["last"] is None
    found = load_file(file)
    assert found["0/output/0"].shape == (0,)
    for index, expected in enumerate(module.state_dict().values()):
        assert found[f"0/output/{index + 1}"].dtype == expected.dtype
        assert torch.equal(found[f"0/output/{index + 1}"], expected)
