"""The variant of a direct level that is the C++ of `golow emit`, called on PyTorch's tensors."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from golow.levels.called.level import BUILT_BEFORE
from golow.levels.level import Launch, Level, Variant, python_worker
from golow.levels.lowering import BUILT
from golow.records.errors import Unsupported
from golow.workload.bundle import Bundle

EMITTED = "emitted"
PROGRAM = "golow.levels.called.emitted_program"


def with_emitted(level: Level) -> Level:
    """Return the level with the variant ``emitted``."""

    def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
        if variant != EMITTED:
            return level.prepare(bundle, variant, cache)
        from golow.levels.called.project_building import missing

        if (lacking := missing(level.name)) is not None:
            raise Unsupported(level.name, "; ".join(lacking))
        key = f"{level.name} {variant} {bundle.workload.digest} {bundle.workload.threads}"
        folder = cache / EMITTED / "built" / hashlib.sha256(key.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return Launch(
            python_worker(PROGRAM, variant),
            environment={"GOLOW_CACHE": str(cache), BUILT_BEFORE: str(folder / BUILT)},
            built_by_loading=folder / BUILT,
            build_measures=bundle.workload.device == "cpu",  # a GPU's engines are not tuned
        )

    own = Variant("the C++ of golow emit, built and called on PyTorch's tensors", modes=("infer",))
    return replace(level, prepare=prepare, variants={**level.variants, EMITTED: own})
