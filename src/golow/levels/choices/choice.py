"""A choice: something that a framework, a library or the system decides unless the user does, with
its alternatives, how each is set, and how the value in effect is read in the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from golow.levels.probe import Probe
from golow.records.workload import Device, Mode, Workload

DEVICES: tuple[Device, ...] = ("cpu", "cuda")
MODES: tuple[Mode, ...] = ("infer", "train")

# Levels by what is in their process. A level of the user's own has none of golow's choices.
IN_PYTORCH = ("eager", "torchscript", "compile", "cudagraph")
WITH_PYTHON = (*IN_PYTORCH, "onnxruntime", "openvino", "onednn", "cudnn")
WITH_TORCH = (*IN_PYTORCH, "libtorch")
EVERYWHERE = (*WITH_PYTHON, "libtorch")


def always_there() -> Probe:
    """For an alternative that needs nothing that is not there anyway."""
    return Probe(True)


def never_redundant(_workload: Workload) -> str:
    """For an alternative that is something new for every workload."""
    return ""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another value of a choice; the user names it after a level: ``eager+fused_sgd``.

    value: what the choice's ``read`` returns where the alternative is in effect; a worker that
    states something else after it was set has not taken it, which is an error of the level.

    It is set by any of: ``environment``, of the worker's process; ``variant``, a variant of the
    level; ``call``, which a Python worker calls with its program before it loads. LibTorch's worker
    is told the name and does what it can itself (``sources/choices.h``).

    levels, modes, devices: where it can be set; those of the choice if empty. rebuilds: whether
    what a level builds depends on it; built_by: of which levels that is true, of all if empty.
    redundant: why it would change nothing for a workload, or nothing that another alternative does
    not; empty if it would. shell, python, cpp: a line to paste that sets it for the user's own
    program. probe: whether what it needs is installed here; imports nothing heavy.
    """

    name: str
    summary: str
    value: str
    environment: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""
    call: Callable[[Any], None] | None = None
    levels: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = ()
    devices: tuple[Device, ...] = ()
    rebuilds: bool = False
    built_by: tuple[str, ...] = ()
    shell: str = ""
    python: str = ""
    cpp: str = ""
    probe: Callable[[], Probe] = always_there
    redundant: Callable[[Workload], str] = never_redundant

    def rebuilt_by(self, level: str) -> bool:
        """True if that level builds again for it."""
        return self.rebuilds and (not self.built_by or level in self.built_by)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One setting with a default that the user can change.

    summary: what it decides, in one sentence. made_by: who decides by default; where: the file or
    page that reports it. levels, modes, devices: where it is in effect. read: the value in effect,
    read in a Python worker from its program; LibTorch's worker has its own reader under the same
    name. None for what golow's own levels decide by their variants. changes_results: whether
    results may be other numbers; they are checked in any case. costs: what an alternative may cost
    elsewhere. likely: among the first to try, by ``golow audit --quick`` and for the advice.
    """

    name: str
    summary: str
    made_by: str
    where: str
    alternatives: tuple[Alternative, ...]
    read: Callable[[Any], str] | None
    levels: tuple[str, ...] = EVERYWHERE
    modes: tuple[Mode, ...] = MODES
    devices: tuple[Device, ...] = DEVICES
    changes_results: bool = False
    costs: str = ""
    likely: bool = False

    def applies(self, level: str, mode: Mode, device: Device) -> bool:
        """True if the choice is in effect at this level, in this mode, on this device."""
        return level in self.levels and mode in self.modes and device in self.devices

    def offered(self, level: str, mode: Mode, device: Device) -> tuple[Alternative, ...]:
        """The alternatives that can be set there, installed or not."""
        if not self.applies(level, mode, device):
            return ()
        return tuple(
            one
            for one in self.alternatives
            if level in (one.levels or self.levels)
            and mode in (one.modes or self.modes)
            and device in (one.devices or self.devices)
        )
