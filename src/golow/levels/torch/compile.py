"""torch.compile with the Inductor back end; variants freeze weights, use CUDA graphs, or tune
kernels."""

from __future__ import annotations

import hashlib
import importlib
import shutil
import sys
import threading
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golow.levels.compiler import require_inductors_folder
from golow.levels.level import Launch, Level, Variant, python_worker
from golow.levels.probe import Probe
from golow.levels.torch import eager
from golow.records.workload import Mode, Workload
from golow.storage.cache import discard_damaged
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from golow.levels.torch.program import TorchProgram

# torch.compile's name for the mode that a variant uses.
MODES = {
    "cudagraphs": "reduce-overhead",
    "freezing-cudagraphs": "reduce-overhead",
    "max-autotune": "max-autotune",
}


def probe() -> Probe:
    """torch and a C++ compiler: for Inductor's code on a CPU, for Triton's launchers on a GPU."""
    if not eager.probe().available:
        return eager.probe()
    if not (shutil.which("g++") or shutil.which("clang++")):
        return Probe(False, "there is no C++ compiler for Inductor", "apt-get install g++")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Inductor builds when the worker loads. Each workload has a separate cache, so that a cold
    build can be told from a warm start."""
    workload = bundle.workload
    # The digest covers the whole workload, including device and precision.
    key = f"{workload.digest} {variant} {version('torch')} {workload.threads}"
    folder = cache / "inductor" / hashlib.sha256(key.encode()).hexdigest()[:16]
    if workload.device == "cpu":
        require_inductors_folder("compile", folder)
    notes: list[str] = []
    discard_damaged(folder, notes)
    environment = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
        "TORCHINDUCTOR_COMPILE_THREADS": str(workload.threads),
        "TORCHINDUCTOR_FREEZING": "1" if "freezing" in variant else "0",
    }
    return Launch(
        python_worker(__name__, variant),
        environment=environment,
        built_by_loading=folder / "built.json",
        build_measures=variant == "max-autotune",
        sealed=folder,
        notes=tuple(notes),
    )


def program(variant: str) -> TorchProgram:
    """The worker's side."""
    return program_class(variant)()


def program_class(variant: str) -> type[TorchProgram]:
    """The worker's program, which others may extend."""
    import torch
    from torch import Tensor, nn

    from golow.levels.torch.own_code import with_own_code
    from golow.levels.torch.program import TorchProgram
    from golow.levels.torch.step import Lowered, Parts
    from golow.lower.capture.module_outputs import mapped

    options: dict[str, Any] = {"mode": MODES[variant]} if variant in MODES else {}
    # The smaller last batch of an epoch gets its own code. By default PyTorch would react to a
    # second size by compiling for any size, which is not what was measured.
    options["dynamic"] = False

    class Compile(TorchProgram):
        builds_on_first_iteration = True
        constant_weights = "freezing" in variant
        indivisible = "torch.compile has fused its layers into generated kernels"

        def lower(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
            if self.workload.draws:
                # The compiler does not see all functions that stand in for others; an export does.
                self.constant_dropout = True  # in the exported program
                module = torch.export.export(module, inputs, strict=False).module()
                # They check the inputs at each call, which takes longer than a small network.
                module._forward_pre_hooks.clear()
                module._forward_hooks.clear()
            if self.constant_weights and hasattr(self, "call"):
                # Else the code with the old weights would be reused.
                torch.compiler.reset()
            return self._compiled(module)

        def _compiled(self, module: Lowered) -> Lowered:
            compiled: Lowered = torch.compile(module, **options)
            return compiled

        def adopt(self, module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload) -> None:
            from torch._inductor import config

            super().adopt(with_own_code(module), inputs, workload)
            # The first call compiles. In a worker an environment variable sets this.
            with config.patch(freezing="freezing" in variant):
                self.infer(inputs)

        def infer(self, inputs: tuple[Tensor, ...]) -> Any:
            output = super().infer(inputs)
            return mapped(Tensor.clone, output) if self._in_graphs() else output

        def _stand_in(self) -> None:
            # The compiler notes what it finds under PyTorch's names when it is imported. It takes
            # that as it is, and reads the code of all others, such as those that stand in.
            importlib.import_module("torch._dynamo")
            super()._stand_in()

        def wake(self, mode: Mode) -> None:
            super().wake(mode)
            importlib.import_module("torch._inductor.compile_fx")  # else the first compilation does

        def allocated_peak(self) -> int | None:
            # A graph's memory is allocated when it is recorded; a replay does not show it.
            return None if self._in_graphs() else super().allocated_peak()

        def _iterate_in_parts(self, parts: Parts) -> None:
            self._begin()
            super()._iterate_in_parts(parts)

        def _infer(self, inputs: tuple[Tensor, ...]) -> Any:
            self._begin()
            return super()._infer(inputs)

        def _learn(self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> Any:
            self._begin()
            return super()._learn(inputs, targets)

        def _begin(self) -> None:
            if self._in_graphs():  # the previous iteration's results may be overwritten now
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]

        def _in_graphs(self) -> bool:
            return variant in MODES and self.workload.device == "cuda"

    return Compile


LEVEL = Level(
    name="compile",
    summary="torch.compile, Inductor's generated kernels",
    needs="torch, C++ compiler",
    probe=probe,
    prepare=prepare,
    devices=("cpu", "cuda"),
    variants={
        "freezing": Variant("weights folded in as constants", modes=("infer",)),
        "cudagraphs": Variant("its kernels replayed as CUDA graphs", devices=("cuda",)),
        "freezing-cudagraphs": Variant(
            "constant weights, replayed as CUDA graphs", modes=("infer",), devices=("cuda",)
        ),
        "max-autotune": Variant("kernels chosen by timing them"),
    },
)


def allow_cudagraphs_in_this_thread() -> None:
    """Let a thread other than the first run what records CUDA graphs.

    Before version 2.13 torch sets up the state of these graphs only in the thread that imports it,
    and any other thread fails at an assertion: https://github.com/pytorch/pytorch/issues/123177.
    """
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or hasattr(trees, "_initialize_tls"):
        return
    from torch._C import _is_key_in_tls, _stash_obj_in_tls

    if _is_key_in_tls("tree_manager_containers"):
        return
    trees.local.tree_manager_containers = {}
    trees.local.tree_manager_locks = defaultdict(threading.Lock)
    for name in ("tree_manager_containers", "tree_manager_locks"):
        _stash_obj_in_tls(name, getattr(trees.local, name))
