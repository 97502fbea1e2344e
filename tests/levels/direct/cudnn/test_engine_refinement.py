"""Engines chosen by the time of the whole iteration: how they are tried, anywhere; in a real plan,
on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from golow.levels.direct.cudnn.level import probe
from golow.levels.direct.cudnn.run.engine_refinement import refine


class Named:
    """Stands for an engine."""

    workspace = 0

    def __init__(self, name: str) -> None:
        self.name = name


class Timed:
    """Engines of two operations that were timed alone, and an execution that runs the chosen ones.
    iteration: of the names of the engines that run, in ns; None fails."""

    def __init__(
        self,
        alone: dict[str, dict[str, float]],
        iteration: Callable[[frozenset[str]], float | None],
    ) -> None:
        self.timed = {
            operation: {Named(name): time for name, time in times.items()}
            for operation, times in alone.items()
        }
        self.chosen = {o: min(times, key=lambda e: times[e]) for o, times in self.timed.items()}
        self.running = {engine: engine for engine in self.chosen.values()}
        self.kept: dict[str, str] = {}
        self.tried: list[frozenset[str]] = []
        self._iteration = iteration

    def choose(self, operation: str) -> Named:
        return self.chosen[operation]

    def keep(self, operation: str, engine: Named) -> None:
        self.kept[operation] = engine.name

    def runs(self, engine: Named) -> bool:
        return engine in self.running

    def exchange(self, engine: Named, other: Named) -> None:
        self.running[engine] = other

    def iteration_ns(self) -> float:
        self.tried.append(frozenset(engine.name for engine in self.running.values()))
        time = self._iteration(self.tried[-1])
        if time is None:
            raise RuntimeError("an engine that fails")
        return time


def refined(timed: Timed) -> bool:
    return refine(cast(Any, timed), cast(Any, timed))


ALONE = {"first": {"a": 4000.0, "b": 4500.0, "far": 90_000.0}, "second": {"c": 5000.0, "d": 5100.0}}


def test_what_makes_the_iteration_faster_is_kept() -> None:
    """Also where it is slower alone; the second is tried beside the first one's choice."""
    times = {"ac": 20_000.0, "bc": 19_000.0, "ad": 18_000.0, "bd": 20_000.0}
    timed = Timed(ALONE, lambda names: times["".join(sorted(names))])
    assert refined(timed)
    assert timed.kept == {"first": "b"}
    assert timed.tried == [{"a", "c"}, {"b", "c"}, {"b", "d"}]


@pytest.mark.parametrize("gain", [1.0, 0.999])
def test_noise_changes_nothing(gain: float) -> None:
    timed = Timed(ALONE, lambda names: 20_000.0 * (gain if "b" in names else 1.0))
    assert not refined(timed)
    assert not timed.kept


def test_nothing_runs_if_all_choices_were_known() -> None:
    timed = Timed({}, lambda names: 20_000.0)
    assert not refined(timed)
    assert not timed.tried


def test_long_iterations_are_left_alone() -> None:
    timed = Timed(ALONE, lambda names: 1e7 if names == {"a", "c"} else 1.0)
    assert not refined(timed)
    assert len(timed.tried) == 1


def test_an_engine_that_fails_there_is_not_kept() -> None:
    timed = Timed(ALONE, lambda names: None if "b" in names else 20_000.0)
    assert not refined(timed)
    assert timed.running == {engine: engine for engine in timed.running}


def test_operations_that_no_step_runs_are_not_tried() -> None:
    timed = Timed(ALONE, lambda names: 20_000.0)
    del timed.running[timed.chosen["second"]]
    assert not refined(timed)
    assert timed.tried == [{"a"}, {"b"}]


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_a_plan_gives_the_same_with_other_engines(tmp_path: Path) -> None:
    """Whatever is tried; and what is kept is found again by the next process."""
    if not probe().available:
        pytest.skip(probe().missing)
    from support.direct.cudnn_in_process import OnGpu, Running, lowered

    module = nn.Sequential(
        nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 32, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 8),
    )  # fmt: skip
    network = lowered(module, torch.randn(4, 16, 8, 8), "infer", precision="tf32")
    on = OnGpu(tmp_path, autotune=True)
    running = Running(network, on, "tf32")
    first = running.step(0)
    assert len(on.engines.timed) >= 3
    for operation, timed in on.engines.timed.items():
        chosen = on.engines.choose(operation)
        assert chosen is not None
        if not running.execution.runs(chosen):
            continue
        for engine in timed:
            running.execution.exchange(chosen, engine)
            for name, found in running.step(0).items():
                torch.testing.assert_close(
                    torch.from_numpy(found), torch.from_numpy(first[name]), rtol=0, atol=2e-2
                )
            running.execution.exchange(chosen, chosen)
        last = list(timed)[-1]
        on.engines.keep(operation, last)
        assert OnGpu(tmp_path, autotune=True).engines.choose(operation).name == last.name  # type: ignore[union-attr]
