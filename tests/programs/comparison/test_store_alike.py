"""Which comparisons may be shown together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from golow.programs.comparison import store
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.records.workload import TensorType
from support.records.comparisons import MACHINE, WORKLOAD, comparison, run


def test_like_runs_may_be_compared() -> None:
    store.require_alike([comparison()])
    elsewhere = msgspec.structs.replace(MACHINE, memory_bytes=1, kernel="Linux 7.0")
    store.require_alike([comparison(), comparison(run(machine=elsewhere), name="other")])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch": 16}, "batch: 8 and 16"),
        ({"model": "mesh"}, 'model: "net" and "mesh"'),
        ({"mode": "train"}, 'mode: "infer" and "train"'),
        ({"precision": "bf16"}, 'precision: "default" and "bf16"'),
        ({"device": "cuda"}, 'device: "cpu" and "cuda"'),
        ({"threads": 4}, "threads: 1 and 4"),
        ({"inputs": (TensorType(shape=(8, 1), dtype="float32"),)}, "inputs: "),
    ],
)
def test_unlike_workloads_are_refused(change: dict[str, Any], words: str) -> None:
    other = run(workload=msgspec.structs.replace(WORKLOAD, **change))
    with pytest.raises(GolowError) as raised:
        store.require_alike([comparison(), comparison(other, name="other")])
    assert words in raised.value.message
    assert "20261120-100000-net and other are not comparable" in raised.value.message
    assert "--anyway" in raised.value.hint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu_model": "Another"}, "the CPU ("),
        ({"cores": 99}, "the number of cores ("),
        ({"versions": MACHINE.versions | {"torch": "1.0"}}, "torch ("),
        ({"thread_settings": {"OMP_NUM_THREADS": "9"}}, "the thread settings ("),
    ],
)
def test_unlike_machines_are_refused(change: dict[str, Any], words: str) -> None:
    other = run(machine=msgspec.structs.replace(MACHINE, **change))
    with pytest.raises(GolowError) as raised:
        store.require_alike([comparison(), comparison(), comparison(other, name="third")])
    assert words in raised.value.message
    assert "third" in raised.value.message


def test_versions_that_only_a_gpu_runs_are_compared_there_alone() -> None:
    without = {name: version for name, version in MACHINE.versions.items() if name != "cuda-core"}
    here = msgspec.structs.replace(MACHINE, versions=without)
    there = msgspec.structs.replace(MACHINE, versions=without | {"cuda-core": "0.9"})
    store.require_alike([comparison(run(machine=here)), comparison(run(machine=there))])
    on_gpu = msgspec.structs.replace(WORKLOAD, device="cuda")
    with pytest.raises(GolowError, match=r"cuda-core \(none, 0\.9\)"):
        store.require_alike(
            [
                comparison(run(workload=on_gpu, machine=here)),
                comparison(run(workload=on_gpu, machine=there)),
            ]
        )


def test_records_are_readable_by_people() -> None:
    text = encode(run()).decode()
    assert '\n  "level": "eager",\n' in text
    assert text.endswith("}\n")
