"""The places of a machine: which cards and cores a cell gets, and what makes their cells alike."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import golow
from golow.measure.environment import environment, unlike
from golow.measure.gpu.cards import visible_cards
from golow.programs.study.observer import SilentStudy
from golow.programs.study.places import places
from golow.programs.study.run import executor
from golow.programs.study.settings import StudySettings
from golow.programs.study.store import StudyFolder
from golow.records.errors import GolowError
from support.records import studies

UUIDS = ("GPU-376d2cc3-aaaa", "GPU-376e0000-bbbb", "GPU-9f000000-cccc")


class Refused(Exception):
    """Of NVML."""


def driver() -> SimpleNamespace:
    """NVML of a machine with three cards, each with so many GiB as its place says."""
    return SimpleNamespace(
        NVMLError=Refused,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(UUIDS),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: UUIDS[handle],
        nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=(handle + 1) * 2**30),
        nvmlSystemGetCudaDriverVersion_v2=lambda: 13000,
    )


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-9f,GPU-376d2cc3-aaaa", [2, 0]),
        ("1,7,0", [1]),  # CUDA stops at what it does not know
        ("", []),
        ("-1", []),
        ("MIG-1", []),
    ],
)
def test_cards_are_those_that_cuda_sees_in_its_order(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, found: list[int]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    cards = visible_cards()
    assert [card.uuid for card in cards] == [UUIDS[place] for place in found]
    assert [card.memory_bytes for card in cards] == [(place + 1) * 2**30 for place in found]
    if found:
        at = places("cuda", jobs=len(found), most_on_a_card=1)
        assert [place.locks for place in at] == [(card.uuid,) for card in cards]
        assert [place.variables["CUDA_VISIBLE_DEVICES"] for place in at] == [c.uuid for c in cards]
        assert {place.machine.device for place in at} == {"NVIDIA H200"}
        assert not unlike(
            at[0].environment, places("cuda", most_on_a_card=1)[0].environment, "cuda"
        )
    with pytest.raises(GolowError, match=f"GPUs; golow sees {len(found)} here"):
        places("cuda", jobs=len(found) + 2)


def test_a_cell_of_several_gpus_has_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0,1")
    [place] = places("cuda", gpus=2)
    assert place.variables == {"CUDA_VISIBLE_DEVICES": f"{UUIDS[2]},{UUIDS[0]}"}
    assert place.locks == (UUIDS[0], UUIDS[2])
    assert place.memory_bytes == 2**30  # of the smaller one
    with pytest.raises(GolowError, match="2 and cells of 2 GPUs need 4 GPUs; golow sees 3 here"):
        places("cuda", jobs=2, gpus=2)


def test_too_few_gpus_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    asked = studies.study(device="cuda", mode=("train",), gpus=(1, 4))
    with pytest.raises(GolowError, match="cells of 4 GPUs need 4 GPUs; golow sees 0 here"):
        golow.run_study(asked, out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("threads", "each"), [((), 3), ((1, 12), 12)])
def test_a_cell_of_a_study_of_threads_has_all_cores_of_its_card(
    threads: tuple[int, ...], each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = msgspec.structs.replace(environment(), affinity=tuple(range(12)))
    monkeypatch.setattr("golow.programs.study.places.environment", lambda: machine)
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("GOLOW_CACHE", str(tmp_path / "cache"))
    asked, folder = studies.study(device="cuda", threads=threads), StudyFolder(tmp_path)
    with executor(asked, folder, StudySettings(program=studies.PROGRAM), SilentStudy()) as found:
        assert found.at_a_time == 12 // each
        assert len(found.environment.affinity) == each


def test_without_nvml_there_is_one_place_whatever_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    [place] = places("cuda")
    assert place.memory_bytes is None
    assert dict(place.variables) == {}


def test_what_a_cell_sets_for_itself_is_no_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    [before] = places("cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray does
    [after] = places("cpu")
    assert before.environment == after.environment
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    [passive] = places("cpu")
    assert unlike(before.environment, passive.environment)


def test_shares_of_the_cores_are_disjoint_and_as_large_as_one_another() -> None:
    cores = sorted(os.sched_getaffinity(0))
    [whole] = places("cpu")
    assert whole.environment.affinity == tuple(cores)
    shares = [place.environment.affinity for place in places("cpu", jobs=len(cores))]
    assert shares == [(core,) for core in cores]
    assert {place.locks for place in places("cpu", jobs=len(cores))} == {whole.locks}


def test_cells_on_one_card_share_no_physical_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight cores with two threads each, numbered as on a server."""
    machine = msgspec.structs.replace(environment(), affinity=tuple(range(16)))
    cores = [[number, number + 8] for number in range(8)]
    monkeypatch.setattr("golow.programs.study.places.environment", lambda: machine)
    monkeypatch.setattr("golow.worker.cores.physical_cores", lambda threads, root: [
        core for core in cores if set(core) <= set(threads)
    ])  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    monkeypatch.setenv("GOLOW_CACHE", str(tmp_path))
    found = places("cuda", jobs=2)
    affinities = [place.environment.affinity for place in found]
    assert affinities == [(0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13), (6, 7, 14, 15)]
    assert [uuid for place in found for uuid in place.locks] == [*UUIDS[1:2] * 2, *UUIDS[2:] * 2]


def test_more_jobs_than_cores_are_refused() -> None:
    with pytest.raises(GolowError, match="cores; there are"):
        places("cpu", jobs=10_000)
    with pytest.raises(GolowError, match="measures nothing"):
        places("cpu", jobs=0)


@pytest.mark.gpu
def test_a_cell_on_a_gpu_names_its_card(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    asked = studies.study(
        device="cuda",
        levels=("eager",),
        batch=(4,),
        resolution=(8,),
        limits=studies.StudyLimits(interval=0.5, seconds=0.5),
    )
    result = golow.run_study(asked, out=tmp_path)
    [record] = result.records.values()
    assert (record.state, record.reason) == ("done", "")
    [card, *_] = visible_cards()
    assert (record.machine.uuid, record.machine.device) == (card.uuid, card.name)
    assert record.needed_bytes
    assert record.held_bytes
