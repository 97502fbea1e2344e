"""A level as the user names it: with a variant, and with choices of the user's own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from golow.levels.choices import Alternative, all_choices
from golow.levels.level import Launch, Level
from golow.records.errors import GolowError, Unsupported
from golow.records.near_names import meant
from golow.records.workload import Device, Mode, Workload
from golow.workload.bundle import Bundle

# Variables that hold a list, and what separates its items: several choices may add to one.
LISTS = {"LD_PRELOAD": ":", "GLIBC_TUNABLES": ":", "PYTORCH_ALLOC_CONF": ","}


class Setting(NamedTuple):
    """An alternative to the default of a choice, which has that name."""

    choice: str
    alternative: Alternative


class ChosenLevel(NamedTuple):
    """A level with a variant and with alternatives to what would be chosen by default."""

    level: Level
    variant: str
    settings: tuple[Setting, ...] = ()

    @property
    def name(self) -> str:
        """``level``, ``level:variant``, ``level+choice`` or ``level:variant+choice+choice``."""
        plain = f"{self.level.name}:{self.variant}" if self.variant else self.level.name
        return "+".join((plain, *(setting.alternative.name for setting in self.settings)))

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that it can run."""
        return self.level.variants[self.variant].modes if self.variant else self.level.modes

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that it can run on."""
        if not self.variant:
            return self.level.devices
        own = self.level.variants[self.variant].devices
        return tuple(device for device in self.level.devices if device in own)

    def with_choices(self, names: Sequence[str], mode: Mode, device: Device) -> Self:
        """The level with these alternatives, which are kept in the order of their names.

        Raises `GolowError` for one that this level does not have in this mode on this device, and
        for two that contradict each other.
        """
        offered = {
            alternative.name: Setting(choice.name, alternative)
            for choice in all_choices()
            for alternative in choice.offered(self.level.name, mode, device)
        }
        wanted = {setting.choice: setting.alternative for setting in self.settings}
        variant = self.variant
        for name in names:
            if name not in offered:
                raise self._has_no(name, sorted(offered), mode, device)
            choice, alternative = offered[name]
            if wanted.get(choice, alternative) != alternative:
                both = f"{wanted[choice].name} and {name}"
                raise GolowError(f"{both} are alternatives of one choice, {choice}", "use one.")
            if alternative.variant and alternative.variant != variant:
                if variant:
                    raise GolowError(f"{self.level.name} is {variant} or {name}, not both")
                variant = alternative.variant
            if not alternative.variant:
                wanted[choice] = alternative
        ordered = sorted((Setting(*item) for item in wanted.items()), key=lambda s: s[1].name)
        return self._replace(variant=variant, settings=tuple(ordered))

    def readable(self, workload: Workload) -> list[str]:
        """The names of the choices whose value in effect a worker of this level can read."""
        where = self.level.name, workload.mode, workload.device
        return [choice.name for choice in all_choices() if choice.read and choice.applies(*where)]

    def inferring(self, device: Device) -> Self:
        """The level for inference, without choices that are for training only."""
        variant = self.variant if "infer" in self.modes else ""
        offered = {
            alternative.name
            for choice in all_choices()
            for alternative in choice.offered(self.level.name, "infer", device)
        }
        kept = tuple(one for one in self.settings if one.alternative.name in offered)
        return self._replace(variant=variant, settings=kept)

    def prepare(self, bundle: Bundle, cache: Path) -> Launch:
        """Build what must be built; returns how to start the worker with its choices.

        Raises `Unsupported` if the level does not support the workload, or if what a choice needs
        is not installed.
        """
        for _, alternative in self.settings:
            probe = alternative.probe()
            if not probe.available:
                raise Unsupported(self.name, f"{alternative.name}: {probe.missing}; {probe.fix}")
        rebuilding = [a.name for _, a in self.settings if a.rebuilt_by(self.level.name)]
        if rebuilding:
            digest = hashlib.sha256("+".join(rebuilding).encode()).hexdigest()
            cache = cache / "choices" / digest[:16]
        launch = self.level.prepare(bundle, self.variant, cache)
        return self.chosen(launch)

    def chosen(self, launch: Launch) -> Launch:
        """How to start a worker of this level with its choices."""
        environment = dict(launch.environment)
        for _, alternative in self.settings:
            for name, value in alternative.environment.items():
                before = environment.get(name, os.environ.get(name)) if name in LISTS else None
                environment[name] = f"{before}{LISTS[name]}{value}" if before else value
        return launch._replace(
            environment=environment,
            ranked=self.level.ranked != "never",
            choices={a.name: (choice, a.value) for choice, a in self.settings},
        )

    def _has_no(self, name: str, offered: Sequence[str], mode: Mode, device: Device) -> GolowError:
        return GolowError(
            f"{self.level.name} has no choice {name!r} ({mode} on {device})",
            f"{meant(name, offered)}`golow choices --level {self.level.name}` lists those that it "
            "has.",
        )
