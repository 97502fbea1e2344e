"""The levels of a text generation: golow's, and the user's own workers."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from golow.levels.generation.loaded_before import has_loaded, times_nothing
from golow.levels.generation.table import TextLevel, chosen
from golow.records.errors import GolowError, Unsupported
from golow.records.text import TextWorkload
from golow.records.workload import Device


class Contestant(NamedTuple):
    """A level by name: golow's own, or a command that the user gave."""

    name: str
    level: TextLevel | None = None
    command: tuple[str, ...] = ()

    def launch(
        self, workload: TextWorkload, cache: Path
    ) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Command and environment of its worker; raises `Unsupported` if it cannot run here."""
        if self.level is None:
            return self.command, {}
        probe = self.level.probe()
        if not probe.available:
            raise Unsupported(self.name, f"{probe.missing}; {probe.fix}")
        return self.level.command, self.level.environment(workload, cache)

    def loads_in_company(self, workload: TextWorkload, cache: Path) -> bool:
        """True if it times nothing while it loads, as far as is known."""
        return self.level is not None and times_nothing(self.level, workload, cache)

    def has_loaded(self, workload: TextWorkload, cache: Path) -> None:
        """Remember that it has loaded the workload."""
        if self.level is not None:
            has_loaded(self.level, workload, cache)


def contestants(
    levels: Sequence[str] | None,
    workers: Mapping[str, Sequence[str]],
    device: Device = "cpu",
) -> tuple[Contestant, ...]:
    """Return the levels of these names, all of the device for None, and the user's. Raises
    `GolowError` for an unknown name, or a command that cannot start."""
    found = [Contestant(level.name, level) for level in chosen(levels, device)]
    for name, command in workers.items():
        if not command or shutil.which(command[0]) is None:
            raise GolowError(
                f"the worker {name!r} cannot start: {command[0] if command else 'no command'} is "
                "not a program",
                f"check the path: --worker {name}=COMMAND",
            )
        if any(name == one.name for one in found):
            raise GolowError(f"a worker cannot be called {name!r}", "a level has this name.")
        found.append(Contestant(name, command=tuple(command)))
    return tuple(found)
