"""A study on a real Ray cluster of several nodes, all on this machine; one of them is killed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from golow.programs.study.cells import cells
from golow.programs.study.cluster import RayExecutor, devices, imported_ray, needs
from golow.programs.study.loop import StudyRun
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import Study
from golow.records.errors import GolowError
from support.processes import all_gone, family, mentioning, soon
from support.records import studies
from support.records.studies import Heard

NODES = 3
FEW = studies.comparison(rounds=(3, 2), seconds=44.0)
ENOUGH = studies.comparison("20261120-110000", rounds=(10, 10))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head without CPUs and three nodes with one each; one cell at a time on each."""
    if find_spec("ray") is None:
        pytest.skip("needs golow[ray]")
    imported_ray()
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("ray")
    changed = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "CELL_COMPARISON": str(studies.made_comparison(folder)),
        "CELL_LONGER": str(studies.made_comparison(folder / "longer", ENOUGH)),
        "CELL_SECONDS": "0.3",
        "GOLOW_CACHE": str(folder / "cache"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changed.items():
            patch.setenv(name, value)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(NODES):
            made.add_node(num_cpus=1)
        yield made
        made.shutdown()


def run(
    cluster: Any,
    folder: Path,
    heard: Heard,
    study: Study,
    refine: bool = False,
) -> None:
    place = StudyFolder(folder / study.name)
    with place.held():
        place.write_study(study)
        with RayExecutor(cluster.address, study, place.draft, studies.PROGRAM) as executor:
            assert executor.at_a_time == len(cluster.worker_nodes)
            order = cells(study, len(executor.environment.affinity))
            StudyRun(study, order, place, executor, heard, refine=refine).run()


def node_of_a_cell(cluster: Any) -> Any | None:
    """The node whose cell is being measured."""
    for cell in mentioning(str(studies.CELL)):
        above = {process.pid for process in psutil.Process(cell).parents()}
        for node in cluster.worker_nodes:
            if above & {started.process.pid for started in node.all_processes["raylet"]}:
                return node
    return None


@pytest.mark.whole_network
def test_unclear_cells_are_refined_on_a_cluster(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were measured here; the others are left alone."""
    first, both = studies.study(batch=(1,), resolution=(8,)), studies.study(resolution=(8,))
    monkeypatch.setenv("CELL_COMPARISON", str(studies.made_comparison(tmp_path / "few", FEW)))
    studies.run(first, tmp_path)
    assert [record.state for record in studies.records(tmp_path).values()] == ["unclear"]

    heard = Heard()
    run(cluster, tmp_path, heard, both, refine=True)
    place = StudyFolder(tmp_path / "tiny")
    found = {record.cell.batch: record for record in studies.records(tmp_path).values()}
    assert {batch: record.state for batch, record in found.items()} == dict.fromkeys(
        (1, 4, 16), "done"
    )
    assert place.comparison(found[1]) == ENOUGH
    assert place.comparison(found[4]) == place.comparison(found[16]) == studies.comparison()
    assert [cell.batch for cell in heard.began_with][-1] == 1

    run(cluster, tmp_path, again := Heard(), both, refine=True)
    assert not again.began_with


@pytest.mark.whole_network
def test_a_study_on_a_cluster_brings_what_one_here_brings(
    cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And a node that is killed in the middle costs nothing but time, and no page of its log."""
    studies.run(studies.study(), tmp_path / "here")

    class Killing(Heard):
        killed: tuple[int, ...] = ()

        def ended(self, record: Any, outlook: Any) -> None:
            super().ended(record, outlook)
            if not self.killed:
                assert soon(lambda: node_of_a_cell(cluster) is not None)
                node = node_of_a_cell(cluster)
                [raylet] = node.all_processes["raylet"]
                self.killed = tuple(family(raylet.process.pid))
                cluster.remove_node(node, allow_graceful=False)

    heard = Killing()
    run(cluster, tmp_path, heard, studies.study())
    assert len(heard.killed) > 2  # the node, a process of Ray's for the task, the cell
    assert all_gone(*heard.killed)
    assert "aylet" not in "".join(capfd.readouterr())
    assert len(heard.records) == 6
    assert studies.timeless(studies.records(tmp_path)) == studies.timeless(
        studies.records(tmp_path / "here")
    )
    place = StudyFolder(tmp_path / "tiny")
    for record in studies.records(tmp_path).values():
        assert place.comparison(record) == studies.comparison()
        assert record.machine.host
    assert len(cluster.worker_nodes) == NODES - 1


@pytest.mark.whole_network
def test_what_is_said_of_a_wrong_address(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs golow[ray]")
    study = studies.study()
    with pytest.raises(GolowError, match="there is no Ray cluster at") as raised:
        RayExecutor("nowhere:port", study, StudyFolder(tmp_path).draft)
    assert "ray start --head" in raised.value.hint


# ---------------------------------------------------------------- which nodes


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    named = {name.replace("_type_", "_type:"): count for name, count in resources.items()}
    return {"Alive": alive, "Resources": named}


def test_a_cell_takes_a_gpu_of_the_kind_that_there_are_most_of() -> None:
    few = node(CPU=8, GPU=2, accelerator_type_T4=1)
    many = node(CPU=64, GPU=8, accelerator_type_H200=1)
    dead = node(alive=False, CPU=64, GPU=16, accelerator_type_T4=1)
    nodes = [few, many, dead, node(CPU=4)]
    asked = needs("cuda", nodes)
    assert asked == {"num_gpus": 1, "accelerator_type": "H200"}
    assert [devices(one, asked) for one in nodes] == [0, 8, 0, 0]
    assert needs("cuda", [node(CPU=8, GPU=2)]) == {"num_gpus": 1}
    with pytest.raises(GolowError, match="has a GPU"):
        needs("cuda", [node(CPU=4), dead])
    both = needs("cuda", nodes, gpus=3)
    assert both == {"num_gpus": 3, "accelerator_type": "H200"}
    assert [devices(one, both) for one in nodes] == [0, 2, 0, 0]
    with pytest.raises(GolowError, match="has 9 GPUs"):
        needs("cuda", nodes, gpus=9)


def test_on_cpus_a_cell_takes_a_node() -> None:
    nodes = [node(CPU=16), node(CPU=8), node(GPU=1), node(alive=False, CPU=4)]
    asked = needs("cpu", nodes)
    assert asked == {"num_cpus": 8}
    assert [devices(one, asked) for one in nodes] == [1, 1, 0, 0]
    with pytest.raises(GolowError, match="CPUs"):
        needs("cpu", [node(GPU=1)])
