"""The public API: what Python users call, and what they hold afterwards."""

from __future__ import annotations

from golow.api.audits import AuditInterrupted, AuditResult, audit, load_audit
from golow.api.programs import (
    Interrupted,
    LifeResult,
    ProfileDiff,
    ProfileResult,
    Result,
    StudyResult,
    TrainingInterrupted,
    TrainingResult,
    choices,
    compare,
    load,
    load_life,
    load_profile,
    load_study,
    load_training,
    profile,
    resume,
    run_study,
    train,
)
from golow.api.supports import SupportResult, support

__all__ = [
    "AuditInterrupted",
    "AuditResult",
    "Interrupted",
    "LifeResult",
    "ProfileDiff",
    "ProfileResult",
    "Result",
    "StudyResult",
    "SupportResult",
    "TrainingInterrupted",
    "TrainingResult",
    "audit",
    "choices",
    "compare",
    "load",
    "load_audit",
    "load_life",
    "load_profile",
    "load_study",
    "load_training",
    "profile",
    "resume",
    "run_study",
    "support",
    "train",
]
