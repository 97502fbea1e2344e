"""Measures cells on a Ray cluster: one task per cell, with its GPUs, or on CPUs a node each.

A task does on its node what `golow.programs.study.local` does on this machine, in its own folder
there; the cell's files come back over Ray as bytes. Only the study's own process writes into the
study's folder. A task whose node or process dies is started again elsewhere, by Ray first and then
by the study.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from golow.programs.study.attempt import PROGRAM, Lost
from golow.programs.study.forecast import Devices
from golow.programs.study.local import LocalExecutor
from golow.programs.study.loop import Finished
from golow.programs.study.observer import SilentStudy
from golow.programs.study.places import places
from golow.programs.study.study_record import Cell, CellRecord, Study
from golow.records.comparison import Environment
from golow.records.errors import GolowError
from golow.records.record import Record
from golow.records.workload import Device
from golow.storage.cache import open_cache
from golow.storage.files import write_whole
from golow.storage.scratch import scratch_folder

RETRIES = 3  # times that Ray itself retries a task whose node or process has died

# Messages that Ray prints when a node dies: a page of the node's log, and that the task is tried
# again.
PRINTED_BY_RAY = r"Raylet is terminated|Task \w+ failed\. There are \d+ retries remaining"
PATIENCE = 5.0  # seconds between checks whether nodes have joined the cluster


class Delivery(Record, frozen=True, kw_only=True):
    """Result of a task: the record or why there is none, and the cell's files by name."""

    environment: Environment
    memory_bytes: int | None
    record: CellRecord | None = None
    lost: str = ""
    files: dict[str, bytes] = {}


def imported_ray() -> Any:
    """Import Ray, set to omit what it prints when a node dies; a user's own setting stays.
    Raises `GolowError` if Ray is missing."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", PRINTED_BY_RAY)
    try:
        import ray
    except ImportError as error:
        raise GolowError("Ray is not installed", "pip install 'golow[ray]'") from error
    return ray


class RayExecutor:
    """Measures cells on the nodes of a Ray cluster that have the resources for one.

    address: ``auto`` for the cluster that this machine belongs to, or a cluster's address. Raises
    `GolowError` if Ray, the cluster, or a node that can run golow is missing.
    """

    shared_devices: Devices | None = None

    def __init__(
        self,
        address: str,
        study: Study,
        drafts: Callable[[], Path],
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._ray = ray = imported_ray()
        self._study, self._drafts, self._program = study, drafts, tuple(program)
        self._tasks: dict[Any, Cell] = {}
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise GolowError(
                f"there is no Ray cluster at {address}: {error}",
                "ray start --head starts one on this machine.",
            ) from error
        try:
            self._needs = needs(study.device, ray.nodes(), max(study.gpus))
            first = self._answer(self._submit(None))
        except BaseException:
            ray.shutdown()
            raise
        if isinstance(first, Lost):
            raise GolowError(
                f"a node of the Ray cluster cannot run golow: {first.reason}",
                "install this version of golow on every node.",
            )
        self.environment, self.memory_bytes = first.environment, first.memory_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the connection, which ends running tasks and their cells."""
        self._ray.shutdown()

    @property
    def at_a_time(self) -> int:
        """How many cells the current nodes can measure at the same time."""
        return sum(devices(node, self._needs) for node in self._ray.nodes())

    def has_room(self, needs: int | None) -> bool:
        """True if one more task would find a free device; tasks do not share devices."""
        return len(self._tasks) < self.at_a_time

    def start(self, cell: Cell, needs: int | None, more: float = 0.0) -> None:
        """Submit a task that measures the cell."""
        self._tasks[self._submit(cell, more)] = cell

    def wait(self) -> list[Finished]:
        """Block until a task ends, or for a while if none is running, as nodes may join."""
        if not self._tasks:
            time.sleep(PATIENCE)
            return []
        ready, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=PATIENCE)
        return [self._finished(task) for task in ready]

    # ------------------------------------------------------------ how it is done

    def _submit(self, cell: Cell | None, more: float = 0.0) -> Any:
        task = self._ray.remote(deliver).options(**self._needs, max_retries=RETRIES)
        limits = self._study.limits
        limits = msgspec.structs.replace(limits, cell_seconds=limits.cell_seconds + more)
        wanted = msgspec.structs.replace(self._study, limits=limits)
        study, asked = (msgspec.msgpack.encode(record) for record in (wanted, cell))
        return task.remote(study, asked, self._program)

    def _answer(self, task: Any) -> Delivery | Lost:
        try:
            return msgspec.msgpack.decode(self._ray.get(task), type=Delivery)
        except self._ray.exceptions.RayError as error:
            return Lost(" ".join(str(error).split()))

    def _finished(self, task: Any) -> Finished:
        cell, draft = self._tasks.pop(task), self._drafts()
        answer = self._answer(task)
        if isinstance(answer, Lost):
            return Finished(cell, answer, draft, self.environment)
        for name, data in answer.files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(draft / name, data)
        brought = answer.record or Lost(answer.lost)
        return Finished(cell, brought, draft, answer.environment)


def needs(device: Device, nodes: Iterable[Mapping[str, Any]], gpus: int = 1) -> dict[str, Any]:
    """The resources that a task requests from Ray.

    The GPUs of the largest cell, all on one node; if the cluster has several kinds, of the most
    common kind, because a grid is most useful on a single kind. Or on CPUs a whole node, because
    cells that share a node's memory disturb each other.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    if device == "cpu":
        counts = [resources["CPU"] for resources in alive if resources.get("CPU", 0) >= 1]
        if not counts:
            raise GolowError("no node of the Ray cluster offers CPUs")
        return {"num_cpus": min(counts)}
    kinds: Counter[str] = Counter()
    for resources in alive:
        named = [name for name in resources if name.startswith("accelerator_type:")]
        kinds["".join(named[:1])] += int(resources.get("GPU", 0)) // gpus
    kind, count = max(kinds.items(), key=lambda item: item[1], default=("", 0))
    if not count:
        wanted = f"{gpus} GPUs" if gpus > 1 else "a GPU"
        hint = "use fewer in `gpus`." if gpus > 1 else "leave out --device cuda."
        raise GolowError(f"no node of the Ray cluster has {wanted}", hint)
    asked: dict[str, Any] = {"num_gpus": gpus}
    return asked | ({"accelerator_type": kind.partition(":")[2]} if kind else {})


def devices(node: Mapping[str, Any], asked: Mapping[str, Any]) -> int:
    """How many such tasks the node can run at the same time; on CPUs at most one."""
    if not node["Alive"]:
        return 0
    resources = node["Resources"]
    if "num_cpus" in asked:
        return int(resources.get("CPU", 0) >= asked["num_cpus"])
    kind = asked.get("accelerator_type")
    fits = kind is None or f"accelerator_type:{kind}" in resources
    return int(resources.get("GPU", 0)) // int(asked["num_gpus"]) if fits else 0


def deliver(study: bytes, asked: bytes, program: Sequence[str]) -> bytes:
    """The task: measure a cell on this node, or only describe the node."""
    wanted = msgspec.msgpack.decode(study, type=Study)
    cell = msgspec.msgpack.decode(asked, type=Cell | None)
    [place] = places(wanted.device, most_on_a_card=1, gpus=max(wanted.gpus))
    delivery = Delivery(environment=place.environment, memory_bytes=place.memory_bytes)
    if cell is not None:
        with scratch_folder() as folder:
            executor = LocalExecutor(
                [place],
                wanted.name,
                open_cache(),
                lambda: Path(tempfile.mkdtemp(dir=folder)),
                wanted.limits.cell_seconds,
                SilentStudy(),
                program,
            )
            with executor:
                delivery = _measured(executor, cell, delivery)
    return msgspec.msgpack.encode(delivery)


def _measured(executor: LocalExecutor, cell: Cell, delivery: Delivery) -> Delivery:
    try:
        while not executor.has_room(None):  # a study outside of Ray may hold the device
            executor.wait()
        executor.start(cell, None)
        while not (over := executor.wait()):
            pass
    except GolowError as error:  # a problem of the node, such as a full disk
        return msgspec.structs.replace(delivery, lost=error.message)
    [finished] = over
    if isinstance(finished.brought, Lost):
        return msgspec.structs.replace(delivery, lost=finished.brought.reason)
    files = {
        str(file.relative_to(finished.draft)): file.read_bytes()
        for file in finished.draft.rglob("*")
        if file.is_file()
    }
    return msgspec.structs.replace(delivery, record=finished.brought, files=files)
