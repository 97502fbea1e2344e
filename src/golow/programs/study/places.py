"""Where cells are measured on this machine: on a GPU, or on a share of the cores.

A GPU has several places. A cell spends most of its time starting, building and checking, which
keeps one core busy and hardly uses the GPU. So several cells prepare in parallel, each on its own
cores, and are timed in turn (`golow.worker.turn`).
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import psutil

from golow.measure.environment import environment
from golow.measure.gpu.cards import CardFacts, visible_cards
from golow.programs.study.study_record import Machine
from golow.records.comparison import Environment
from golow.records.errors import GolowError
from golow.records.workload import Device
from golow.storage.cache import default_cache
from golow.worker.cores import shares
from golow.worker.process import thread_settings

CORES_A_CELL = 3
"""Minimum hardware threads of a place on a GPU: an eager training step keeps two busy."""

MOST_ON_A_CARD = 6
"""Most places on a GPU: timing takes an eighth of a cell, so more would wait for their turn."""

TURNS = "GOLOW_STUDY_TURNS"
"""The environment variable with the folder through which the cells on a GPU take turns."""


class Place(NamedTuple):
    """Room for one cell at a time, on one or several GPUs or on some cores.

    locks: the names of its devices' locks, in the order in which every study takes them.
    environment: of the measurements there, without the settings that each cell makes itself; its
    affinity is the cores of the place. variables: added to the environment of the cell's process.
    memory_bytes: of the smallest device; None if the driver does not report it.
    """

    locks: tuple[str, ...]
    machine: Machine
    environment: Environment
    variables: Mapping[str, str]
    memory_bytes: int | None

    @property
    def shares_its_card(self) -> bool:
        """True if there are other places on the GPU, which take turns with this one."""
        return TURNS in self.variables


def require_places(device: Device, jobs: int, gpus: int = 1) -> None:
    """Raise `GolowError` for a number of places that makes no sense, or for which this machine has
    too few GPUs. gpus: of the largest cell."""
    if jobs < 1:
        raise GolowError(f"--jobs {jobs} measures nothing", "use --jobs 1 or more.")
    needed, found = jobs * gpus, len(visible_cards()) if device == "cuda" else 0
    if device == "cuda" and needed > max(1, found):
        cells = [f"cells of {gpus} GPUs"] if gpus > 1 else []
        asked = " and ".join([f"--jobs {jobs}"] * (jobs > 1) + cells)
        raise GolowError(
            f"{asked} need{'s' * (gpus == 1)} {needed} GPUs; golow sees {found} here",
            "use fewer; if a GPU is not seen, `golow doctor` shows what is missing.",
        )


def places(
    device: Device, jobs: int = 1, most_on_a_card: int = MOST_ON_A_CARD, gpus: int = 1
) -> list[Place]:
    """The places on this machine. jobs: how many of them may be busy on different devices: sets of
    GPUs, or disjoint shares of the cores. gpus: of each set; cells do not share several.

    Raises `GolowError` if there are fewer than that.
    """
    require_places(device, jobs, gpus)
    found = environment()
    own = {k: v for k, v in found.thread_settings.items() if k not in thread_settings(1)}
    found = msgspec.structs.replace(found, thread_settings=own)
    if device == "cpu":
        return _shares(found, jobs)
    return _cards(found, jobs, gpus, most_on_a_card if gpus == 1 else 1)


def _cards(found: Environment, jobs: int, gpus: int, most: int) -> list[Place]:
    host, cards = platform.node(), visible_cards()
    if not cards and jobs == 1:
        # GPUs cannot be told apart: whatever is there is one place, and if nothing is there, the
        # first cell reports it.
        return [Place((f"cuda-{host}",), Machine(host=host, device="GPU"), found, {}, None)]
    sets = [cards[first : first + gpus] for first in range(0, jobs * gpus, gpus)]
    return [
        place
        for chosen, cores in zip(sets, shares(found.affinity, jobs), strict=True)
        for place in _on_cards(chosen, found, cores, most)
    ]


def _on_cards(
    cards: Sequence[CardFacts], found: Environment, cores: Sequence[int], most: int
) -> Iterator[Place]:
    """The places on a set of GPUs, which gets these cores of the machine."""
    host, uuids = platform.node(), tuple(card.uuid for card in cards)
    names = dict.fromkeys(card.name for card in cards)
    fitting = (
        cut for count in range(most, 1, -1) if len((cut := shares(cores, count))[0]) >= CORES_A_CELL
    )
    parts = next(fitting, [found.affinity])  # a cell alone on its GPU is not bound to cores
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}
    if len(parts) > 1:
        variables[TURNS] = str(default_cache() / "locks" / f"{uuids[0]}.turns")
    for own in parts:
        yield Place(
            locks=tuple(sorted(uuids)),
            machine=Machine(host=host, device=" or ".join(names), uuid=",".join(uuids)),
            environment=msgspec.structs.replace(found, affinity=own),
            variables=variables,
            memory_bytes=min(card.memory_bytes for card in cards),
        )


def _shares(found: Environment, jobs: int) -> list[Place]:
    """Places with one lock: two studies on disjoint cores still share the memory's bandwidth."""
    cores = len(found.affinity)
    if cores < jobs:
        raise GolowError(f"--jobs {jobs} needs {jobs} cores; there are {cores}", "use fewer.")
    host = platform.node()
    machine = Machine(host=host, device=found.cpu_model)
    memory = _memory_bytes(found) // jobs
    return [
        Place(
            locks=(f"cpu-{host}",),
            machine=machine,
            environment=msgspec.structs.replace(found, affinity=own),
            variables={},
            memory_bytes=memory,
        )
        for own in shares(found.affinity, jobs)
    ]


def _memory_bytes(found: Environment) -> int:
    """The memory of the machine, or of the container if that has less."""
    allowed = found.container_limits.get("memory.max")
    total = psutil.virtual_memory().total
    return min(total, int(allowed)) if allowed else int(total)
