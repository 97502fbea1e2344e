"""golow: run a PyTorch model at every level of abstraction, prove that the levels agree, and
measure what each one costs.

The names here are the public API. They are loaded when they are first used, because a worker
without a framework imports this package too.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: it imports for 10 ms, and `golow.__main__` comes after
if TYPE_CHECKING:
    from typing import Any

    from golow.api import (
        AuditInterrupted,
        AuditResult,
        ErrorWithResult,
        GenerationInterrupted,
        GenerationResult,
        Interrupted,
        LifeResult,
        LoadTestInterrupted,
        LoadTestResult,
        ProfileDiff,
        ProfileInterrupted,
        ProfileResult,
        QuantizationResult,
        Result,
        RoofResult,
        StudyResult,
        SupportResult,
        TrainingInterrupted,
        TrainingResult,
        audit,
        choices,
        compare,
        compile,
        compile_step,
        generate,
        load,
        load_audit,
        load_generation,
        load_life,
        load_load_test,
        load_profile,
        load_quantization,
        load_study,
        load_test,
        load_training,
        profile,
        quantize,
        resume,
        roof,
        run_study,
        support,
        train,
    )
    from golow.artifact.loaded_module import LoadedModule
    from golow.artifact.loading import load_compiled
    from golow.compiled.compiled_module import CompiledModule
    from golow.compiled.dynamo.backend_report import BackendReport, backend_report
    from golow.levels.called.generation.generation import Generation
    from golow.levels.called.generation.generator import Generator
    from golow.levels.called.training.training_step import TrainingStep
    from golow.programs.training.training_record import Augmentation, Schedule
    from golow.records.errors import GolowError
    from golow.records.workload import Optimizer

__all__ = [
    "AuditInterrupted",
    "AuditResult",
    "Augmentation",
    "BackendReport",
    "CompiledModule",
    "ErrorWithResult",
    "Generation",
    "GenerationInterrupted",
    "GenerationResult",
    "Generator",
    "GolowError",
    "Interrupted",
    "LifeResult",
    "LoadTestInterrupted",
    "LoadTestResult",
    "LoadedModule",
    "Optimizer",
    "ProfileDiff",
    "ProfileInterrupted",
    "ProfileResult",
    "QuantizationResult",
    "Result",
    "RoofResult",
    "Schedule",
    "StudyResult",
    "SupportResult",
    "TrainingInterrupted",
    "TrainingResult",
    "TrainingStep",
    "audit",
    "backend_report",
    "choices",
    "compare",
    "compile",
    "compile_step",
    "generate",
    "load",
    "load_audit",
    "load_compiled",
    "load_generation",
    "load_life",
    "load_load_test",
    "load_profile",
    "load_quantization",
    "load_study",
    "load_test",
    "load_training",
    "profile",
    "quantize",
    "resume",
    "roof",
    "run_study",
    "support",
    "train",
]

# Names that are not in golow.api: records, and modules that must not import the whole API.
_RECORDS = {
    "Augmentation": "golow.programs.training.training_record",
    "BackendReport": "golow.compiled.dynamo.backend_report",
    "CompiledModule": "golow.compiled.compiled_module",
    "Generation": "golow.levels.called.generation.generation",
    "Generator": "golow.levels.called.generation.generator",
    "GolowError": "golow.records.errors",
    "LoadedModule": "golow.artifact.loaded_module",
    "Optimizer": "golow.records.workload",
    "load_compiled": "golow.artifact.loading",
    "Schedule": "golow.programs.training.training_record",
    "TrainingStep": "golow.levels.called.training.training_step",
    "backend_report": "golow.compiled.dynamo.backend_report",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'golow' has no attribute {name!r}")
    return getattr(import_module(_RECORDS.get(name, "golow.api")), name)


def __dir__() -> list[str]:
    """The public names, for completion: they are not loaded yet."""
    return __all__
