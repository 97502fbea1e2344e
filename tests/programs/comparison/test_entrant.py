"""What an entrant keeps of a race in which a level turns out to have no time."""

from __future__ import annotations

import time
from pathlib import Path

from golow.check.checked_level import CheckedLevel
from golow.levels import ladder
from golow.levels.starter import Starter
from golow.measure.race import run_race
from golow.programs.comparison.entrant import Entrant
from golow.records.comparison import Sample
from golow.worker.protocol import Challenge
from support.workers.bundles import product_bundle


class Sleeping:
    """A worker whose iterations last for a millisecond."""

    def __init__(self, name: str) -> None:
        self.name = name

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        began = time.perf_counter_ns()
        time.sleep(1e-3 * (iterations + warmup))
        passed = time.perf_counter_ns() - began
        each = passed // (iterations + warmup)
        return Sample(host_ns=(each,) * iterations, wall_ns=passed, wait_share=0.0)


def test_no_ratio_is_to_a_baseline_that_was_refuted(tmp_path: Path) -> None:
    """As where the host delays eager on a GPU so much that golow's clock refutes its times."""
    names = ("eager", "torchscript")
    race = run_race([Sleeping(name) for name in names], baseline="eager", seed=0, time_limit=0.5)
    bundle = product_bundle(tmp_path / "bundle")
    entrants = []
    for name in names:
        choice = ladder.choose(name, "infer", "cpu")
        entrants.append(Entrant(CheckedLevel(choice, bundle, tmp_path, Starter())))
        entrants[-1].keep(race, names)
    eager, other = entrants
    assert other.race is not None
    assert other.race.ratio("torchscript") is not None
    for entrant in entrants:
        entrant.refute({"eager": "by golow's clock its blocks took longer"})
    assert (eager.level.check.verdict, eager.level.check.reason[:16]) == (
        "failed",
        "by golow's clock",
    )
    assert eager.race is not None
    assert eager.race.time("eager") is None
    assert other.race.time("torchscript") is not None
    assert other.race.ratio("torchscript") is None
