"""Chooses the levels of a comparison: named or default ones, and the user's own workers."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from golow.levels import ladder
from golow.levels.installed import installed, installed_command
from golow.levels.ladder import ChosenLevel, Launch, Level, Probe
from golow.records.errors import GolowError
from golow.records.workload import Device, Mode
from golow.storage.names import LONGEST_PART
from golow.workload.bundle import Bundle

OWN_NAME = re.compile(r"\w[\w-]*")


def choices(
    levels: Sequence[str] | None,
    workers: Mapping[str, str | Sequence[str]],
    mode: Mode,
    device: Device,
    ranks: int = 1,
) -> list[ChosenLevel]:
    """The levels to run, each once, the baseline first.

    levels: names, of other packages' levels too, or None for the default ones; workers: commands by
    name. Raises `GolowError` for an unknown name, or for a level that does not run in this mode, on
    this device or in this many ranks.
    """
    asked = ladder.listed(levels)
    names = ladder.default(mode, device, ranks) if asked is None else asked
    others = installed() if levels is not None else {}
    own = {name: others[name] for name in names if name in others and not ladder.has(name)}
    names = [name for name in names if name not in own]
    commands = {name: installed_command(point) for name, point in own.items()} | dict(workers)
    # By the level's own name: an alias for it is the same level.
    if ranks > 1 and commands:
        raise GolowError(
            f"{next(iter(commands))} is your own worker, which runs in one process",
            "leave it out, or leave out --ranks and --gpus.",
            python_hint="leave it out, or use ranks=1.",
        )
    first = ladder.baseline(ranks)
    found = [ladder.choose(name, mode, device, ranks) for name in (first, *names)]
    chosen = list({choice.name: choice for choice in found}.values())
    taken = {choice.name.replace(":", "-") for choice in chosen}
    return chosen + [_own_worker(name, command, taken) for name, command in commands.items()]


def require_any(named: Sequence[str] | None, chosen: Sequence[ChosenLevel], device: Device) -> None:
    """Raise `GolowError` if none of the named levels can run here, so that only the baseline, which
    the user did not name, would be left. Default levels are not asked for."""
    baselines = {ladder.BASELINE, ladder.BASELINE_OF_RANKS}
    if named is None or not baselines.isdisjoint(named):
        return
    asked = [choice for choice in chosen if choice.name not in baselines]
    probes = {choice.level.name: choice.level.probe_on(device) for choice in asked}
    if not probes or any(probe.available for probe in probes.values()):
        return
    reasons = "; ".join(f"{name} cannot run here: {one.missing}" for name, one in probes.items())
    fixes = dict.fromkeys(probe.fix for probe in probes.values())
    raise GolowError(reasons, "; ".join(fix for fix in fixes if fix))


def command_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """The command of a worker, given as a command line or as a list of arguments. Raises
    `GolowError` for a command line with an open quotation."""
    try:
        return tuple(shlex.split(given)) if isinstance(given, str) else tuple(given)
    except ValueError as error:
        raise GolowError(
            f"the worker's command {given!r} cannot be read: {error}", "close the quotation."
        ) from error


def _own_worker(name: str, given: str | Sequence[str], taken: Collection[str]) -> ChosenLevel:
    """A level that runs the user's own program."""
    command = command_of(given)
    if not command:
        raise GolowError(f"the worker {name!r} has no command")
    # The name is also used for files.
    fits = OWN_NAME.fullmatch(name) and len(name.encode()) <= LONGEST_PART
    if not fits or name in {*taken, "comparison"}:
        raise GolowError(
            f"a worker cannot be called {name!r}",
            "choose a name of up to 100 letters, digits, _ and - that no level has.",
        )
    if shutil.which(command[0]) is None:
        raise GolowError(
            f"the worker {name!r} cannot start: {command[0]} is not a program",
            f"check the path: --worker {name}=COMMAND",
        )

    def probe() -> Probe:
        return Probe(True)

    def start(bundle: Bundle, variant: str, cache: Path) -> Launch:
        return Launch(command)

    summary = f"custom: {' '.join(command)}"
    return ChosenLevel(Level(name, summary, "", probe, start, devices=("cpu", "cuda")), "")
