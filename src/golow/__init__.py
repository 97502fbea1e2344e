"""golow: run a PyTorch model at every level of abstraction, prove that the levels agree, and
measure what each one costs.

The names here are the public API. They are loaded when they are first used, because a worker
without a framework imports this package too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from golow.comparison import Interrupted, Result, compare
    from golow.record import GolowError, Optimizer
    from golow.store import load
    from golow.study.run import StudyResult, load_study, run_study
    from golow.training.train import TrainingInterrupted, TrainingResult, resume, train
    from golow.training_record import Augmentation, Schedule
    from golow.training_store import load as load_training

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
    "Augmentation": "golow.training_record",
    "GolowError": "golow.record",
    "Interrupted": "golow.comparison",
    "Optimizer": "golow.record",
    "Result": "golow.comparison",
    "Schedule": "golow.training_record",
    "StudyResult": "golow.study.run",
    "TrainingInterrupted": "golow.training.train",
    "TrainingResult": "golow.training.train",
    "compare": "golow.comparison",
    "load": "golow.store",
    "load_study": "golow.study.run",
    "load_training": "golow.training_store",
    "resume": "golow.training.train",
    "run_study": "golow.study.run",
    "train": "golow.training.train",
}
_NAMES_THERE = {"load_training": "load"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'golow' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), _NAMES_THERE.get(name, name))
