"""Parts that only artifacts of `onednn` have: layouts, and kernels with their sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from golow.artifact.container import Entries
from golow.artifact.manifest import LAYOUTS, library_entry, source_entry
from golow.levels.called.called_module import CalledModule
from golow.levels.called.target import TargetPlan
from golow.levels.direct.onednn.bindings import library
from golow.levels.direct.onednn.bindings.processor import instruction_sets, model_name
from golow.levels.direct.onednn.run.called_plan import CalledPlan
from golow.records.errors import GolowError


class Saved:
    """A module whose plans are `CalledPlan` of onednn. Raises `GolowError` for one that has no
    separate weights."""

    tuned = False  # layouts are in the file

    def __init__(self, module: CalledModule) -> None:
        if module.target.shares:
            raise GolowError(
                "share=True uses the module's weights in memory, which a file cannot store",
                "leave share= out.",
            )
        self._plans = [cast(CalledPlan, plan) for plan in module.plans.values()]
        self.library, self.processor = f"oneDNN {library.version()}", model_name()
        self.instruction_sets = instruction_sets()

    def of_plan(self, plan: TargetPlan) -> Entries:
        """Content of the folder of a plan."""
        yield LAYOUTS, msgspec.json.encode(cast(CalledPlan, plan).layouts)

    def chosen(self) -> Entries:
        """Choices made by measuring, for the same folder: nothing."""
        return iter(())

    def compiled(self, draft: Callable[[Path], None]) -> Entries:
        """The kernels."""
        found = {digest: item for plan in self._plans for digest, item in plan.kernels().items()}
        for digest, (source, compiled) in found.items():
            yield source_entry(digest), source.encode()
            yield library_entry(digest), compiled.read_bytes()
