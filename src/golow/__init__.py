"""golow: run a PyTorch model at every level of abstraction, prove that the levels agree, and
measure what each one costs.

The names here are the public API. They are loaded when they are first used, because a worker
without a framework imports this package too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from golow.comparison.compare import Interrupted, Result, compare
    from golow.comparison.store import load
    from golow.record import GolowError, Optimizer
    from golow.study.run import StudyResult, load_study, run_study
    from golow.training.record import Augmentation, Schedule
    from golow.training.store import load as load_training
    from golow.training.train import TrainingInterrupted, TrainingResult, resume, train

__all__ = [
    "Augmentation",
    "GolowError",
    "Interrupted",
    "Optimizer",
    "Result",
    "Schedule",
    "StudyResult",
    "TrainingInterrupted",
    "TrainingResult",
    "compare",
    "load",
    "load_study",
    "load_training",
    "resume",
    "run_study",
    "train",
]

_HOMES = {
    "Augmentation": "golow.training.record",
    "GolowError": "golow.record",
    "Interrupted": "golow.comparison.compare",
    "Optimizer": "golow.record",
    "Result": "golow.comparison.compare",
    "Schedule": "golow.training.record",
    "StudyResult": "golow.study.run",
    "TrainingInterrupted": "golow.training.train",
    "TrainingResult": "golow.training.train",
    "compare": "golow.comparison.compare",
    "load": "golow.comparison.store",
    "load_study": "golow.study.run",
    "load_training": "golow.training.store",
    "resume": "golow.training.train",
    "run_study": "golow.study.run",
    "train": "golow.training.train",
}
_NAMES_THERE = {"load_training": "load"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'golow' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), _NAMES_THERE.get(name, name))
