"""A network as a project of the level that runs it: its sources, and the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from golow.levels.called.called_module import CalledModule

if TYPE_CHECKING:
    from golow.levels.called.gpu import OneGpu
    from golow.levels.direct.cudnn.emit.plan_source import Written
    from golow.levels.direct.emit.network import Network


class Project(Protocol):
    """A project before it is written."""

    def texts(self) -> Mapping[str, str]:
        """Its sources by their files. Raises `GolowError` for a step that has no form in C++."""

    def write(self, folder: Path) -> list[Path]:
        """Write it; return the files. Raises `GolowError` as `texts`, and for a folder that holds
        something else."""


def project_of(called: CalledModule, network: Network[Any]) -> Project:
    """The project of a called module's network, for the level of its plans."""
    if called.target.level == "cudnn":
        return OnGpu(cast("OneGpu", called.target), network)
    return OnProcessor(network)


class OnProcessor:
    """A project that calls oneDNN."""

    def __init__(self, network: Network[Any]) -> None:
        self._network = network

    def texts(self) -> Mapping[str, str]:
        """As in `Project`."""
        from golow.levels.direct.onednn.emit.project import project_texts

        return project_texts(self._network)

    def write(self, folder: Path) -> list[Path]:
        """As in `Project`."""
        from golow.levels.direct.onednn.emit.project import write_project

        return write_project(self._network, folder)


class OnGpu:
    """A project that calls cuDNN and cuBLASLt, for the GPU of its plans."""

    def __init__(self, target: OneGpu, network: Network[Any]) -> None:
        from golow.levels.direct.cudnn.emit.machine import machine_of, written_network

        self._machine = machine_of(target.engines)
        self._network: Network[Written] = written_network(network)

    def texts(self) -> Mapping[str, str]:
        """As in `Project`."""
        from golow.levels.direct.cudnn.emit.project import project_texts

        return project_texts(self._network, self._machine)

    def write(self, folder: Path) -> list[Path]:
        """As in `Project`."""
        from golow.levels.direct.cudnn.emit.project import write_project

        return write_project(self._network, self._machine, folder)
