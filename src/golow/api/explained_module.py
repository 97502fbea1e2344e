"""Result of `golow.compile` at a direct level: a compiled module that explains its plan."""

from __future__ import annotations

from pathlib import Path

from golow.api.progress import shown_progress
from golow.api.roofs import RoofResult
from golow.compiled.compiled_module import CompiledModule
from golow.levels.called.sizes import Size
from golow.observer import Observer
from golow.records.workload import ModelSource, TensorType, Workload
from golow.storage.cache import open_cache


class ExplainedModule(CompiledModule):
    """A module whose plan runs in this process, with separate weights.

    Call it as the module: tensors in, tensors out. Later changes to the module's weights do not
    affect it; `load_state_dict` does.
    """

    def roof(
        self,
        batch: int | None = None,
        sequence: int | None = None,
        *,
        measure: bool = True,
        cache: Path | None = None,
        quiet: bool = False,
        observer: Observer | None = None,
    ) -> RoofResult:
        """Return the time of each step of the plan, and the least time that it needs on this
        machine, as `golow.roof` does.

        batch and sequence: select the size; the largest by default. measure: time the steps on the
        example, with `onednn`; otherwise, and with `cudnn`, only count their bytes and operations.
        cache: folder where the machine's peak is stored. Raises `GolowError` for a size that was
        not compiled.
        """
        from golow.programs.explain.roof import plan_roof

        size = self.size(batch, sequence)
        with shown_progress("comparison", observer, quiet) as display:
            display.stage("timing the steps")
            seconds = self.step_seconds(size) if measure else {}
            plan, folder = self.plans[size].plan, open_cache(cache)
            return RoofResult(
                plan_roof(plan, self._workload(size), self.target.level, seconds, folder, display)
            )

    def _workload(self, size: Size) -> Workload:
        name, target = type(self._module).__name__, self.target
        inputs = tuple(
            TensorType(shape=tuple(item.shape), dtype=str(item.dtype).removeprefix("torch."))
            for item in self.inputs.sample(size)
        )
        return Workload(
            model=name,
            source=ModelSource(kind="pickle", name=name),
            mode="infer",
            batch=size[0],
            inputs=inputs,
            device="cuda" if target.device.type == "cuda" else "cpu",
            precision=target.precision,
            threads=target.threads,
            parameters=sum(item.numel() for item in self._module.parameters()),
        )
