"""Parts that only artifacts of `cudnn` have: engines, and kernels as a new process compiles
them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from golow.artifact.container import Entries
from golow.artifact.manifest import ENGINES, KERNELS
from golow.artifact.trial import try_artifact
from golow.levels.called.called_module import CalledModule
from golow.levels.called.gpu import OneGpu
from golow.levels.called.target import TargetPlan
from golow.storage.scratch import scratch_folder


class Saved:
    """A module whose plans are those of a GPU."""

    instruction_sets = ()

    def __init__(self, module: CalledModule) -> None:
        self._engines = cast(OneGpu, module.target).engines
        self.tuned, self.processor = self._engines.times, self._engines.gpu.name
        self.library = (
            f"cuDNN {self._engines.frontend.version}, cuBLASLt {self._engines.lt.version}"
        )

    def of_plan(self, plan: TargetPlan) -> Entries:
        """Content of the folder of a plan: nothing."""
        return iter(())

    def chosen(self) -> Entries:
        """The engines."""
        for file in sorted(self._engines.files):
            if file.exists():
                yield f"{ENGINES}/{file.name}", file.read_bytes()

    def compiled(self, draft: Callable[[Path], None]) -> Entries:
        """The kernels that a process compiles in which nothing was compiled before. draft: writes
        the artifact without them. Raises `GolowError` if it does not run there."""
        with scratch_folder() as folder:
            draft(folder / "draft.golow")
            try_artifact(folder / "draft.golow", folder / "cache")
            for file in sorted((folder / "cache" / "artifacts").glob(f"*/{KERNELS}/*")):
                yield f"{KERNELS}/{file.name}", file.read_bytes()
