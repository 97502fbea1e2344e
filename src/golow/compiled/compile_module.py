"""Builds a module's plans as a callable that can check itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from golow.compiled.compiled_module import CompiledModule
from golow.levels.called.building import built
from golow.observer import Observer
from golow.records.workload import Precision

Made = TypeVar("Made", bound=CompiledModule)


def compile_module(
    kind: type[Made],
    module: nn.Module,
    example: Any,
    observer: Observer,
    *,
    level: str = "direct",
    batch: int | Sequence[int] | None = None,
    sequence: int | Sequence[int] | None = None,
    precision: Precision = "default",
    threads: int | None = None,
    tune: bool = False,
    share: bool = False,
    cache: Path | None = None,
) -> Made:
    """Build a plan for each size and load the module's weights, as an object of this class; the
    other arguments are those of `golow.compile`. Raises `GolowError` for what cannot be run, before
    anything is built."""
    return built(
        kind,
        module,
        example,
        observer,
        level=level,
        batch=batch,
        sequence=sequence,
        precision=precision,
        threads=threads,
        tune=tune,
        share=share,
        cache=cache,
    )
