"""The public API: functions for Python users, and their results."""

from __future__ import annotations

from golow.api.audits import AuditInterrupted, AuditResult, audit, load_audit
from golow.api.comparisons import (
    Interrupted,
    LifeResult,
    Result,
    choices,
    compare,
    load,
    load_life,
)
from golow.api.compiling import compile, compile_step
from golow.api.generations import (
    GenerationInterrupted,
    GenerationResult,
    generate,
    load_generation,
)
from golow.api.load_tests import (
    LoadTestInterrupted,
    LoadTestResult,
    load_load_test,
    load_test,
)
from golow.api.partial import ErrorWithResult
from golow.api.profiles import (
    ProfileDiff,
    ProfileInterrupted,
    ProfileResult,
    load_profile,
    profile,
)
from golow.api.quantizing import QuantizationResult, load_quantization, quantize
from golow.api.roofs import RoofResult, roof
from golow.api.studies import StudyResult, load_study, run_study
from golow.api.supports import SupportResult, support
from golow.api.trainings import (
    TrainingInterrupted,
    TrainingResult,
    load_training,
    resume,
    train,
)

__all__ = [
    "AuditInterrupted",
    "AuditResult",
    "ErrorWithResult",
    "GenerationInterrupted",
    "GenerationResult",
    "Interrupted",
    "LifeResult",
    "LoadTestInterrupted",
    "LoadTestResult",
    "ProfileDiff",
    "ProfileInterrupted",
    "ProfileResult",
    "QuantizationResult",
    "Result",
    "RoofResult",
    "StudyResult",
    "SupportResult",
    "TrainingInterrupted",
    "TrainingResult",
    "audit",
    "choices",
    "compare",
    "compile",
    "compile_step",
    "generate",
    "load",
    "load_audit",
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
