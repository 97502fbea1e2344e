"""The variant of a direct level that PyTorch's programs call: its plan on tensors, as
`golow.compile` hands it over, or `golow.compile_step` in training."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from golow.levels.level import Launch, Level, Variant, python_worker
from golow.levels.lowering import BUILT
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from golow.workload.bundle import Bundle

CALLED = "called"
PROGRAMS: dict[Mode, str] = {
    "infer": "golow.levels.called.program",
    "train": "golow.levels.called.training.program",
}
# Environment variable with the file that exists once the plan was built.
BUILT_BEFORE = "GOLOW_CALLED_BUILT"


def with_called(level: Level) -> Level:
    """Return the level with the variant ``called``, and ``called-V`` for each of its own."""

    def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
        if not variant.startswith(CALLED):
            return level.prepare(bundle, variant, cache)
        if bundle.workload.ranks > 1:
            raise Unsupported(level.name, f"{variant} trains in one process here")
        # The digest covers the whole workload, including device and precision.
        key = f"{level.name} {variant} {bundle.workload.digest} {bundle.workload.threads}"
        folder = cache / CALLED / hashlib.sha256(key.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return Launch(
            python_worker(PROGRAMS[bundle.workload.mode], variant),
            environment={"GOLOW_CACHE": str(cache), BUILT_BEFORE: str(folder / BUILT)},
            built_by_loading=folder / BUILT,
            # Layouts on a CPU; a GPU's engines only by the variants that are tuned.
            build_measures=bundle.workload.device == "cpu" or variant != CALLED,
        )

    what = "the plan called on PyTorch's tensors, as golow.compile or compile_step returns it"
    names = {CALLED: what, **{f"{CALLED}-{own}": f"{what}; {own}" for own in level.variants}}
    variants = {name: Variant(summary) for name, summary in names.items()}
    return replace(level, prepare=prepare, variants={**level.variants, **variants})
