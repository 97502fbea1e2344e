"""Comparisons made by hand, as `golow.compare` records them."""

from __future__ import annotations

from typing import Any

import msgspec

from golow.measure.environment import environment
from golow.records.comparison import (
    Block,
    Check,
    Comparison,
    Conditions,
    Environment,
    Quantity,
    RaceSummary,
    Ratio,
    Run,
    TensorError,
    VerdictName,
)
from golow.records.record import FORMAT_VERSION
from golow.records.workload import ModelSource, TensorType, Workload

MACHINE = environment()
WORKLOAD = Workload(
    model="net",
    source=ModelSource(kind="zoo", name="net"),
    mode="infer",
    batch=8,
    inputs=(TensorType(shape=(8, 3, 64, 64), dtype="float32"),),
)

CONDITIONS = Conditions(threads=2, affinity=(0, 1), precision="default", wait_policy="PASSIVE")


def run(
    level: str = "eager",
    verdict: VerdictName = "match",
    error: float = 1e-7,
    blocks: int = 3,
    workload: Workload = WORKLOAD,
    machine: Environment = MACHINE,
) -> Run:
    worst = TensorError(
        name="0/output/0",
        elements=80,
        scale=0.5,
        error=error,
        eager_error=1e-7,
        limit=4e-7,
        passed=error <= 4e-7,
    )
    return Run(
        format_version=FORMAT_VERSION,
        id=f"20261120-100000-net-infer-b8-3x64x64/{level}",
        created="2026-11-20T10:00:00+00:00",
        level=level,
        workload=workload,
        check=Check(verdict=verdict, reason="a reason", worst=worst, tensors=(worst,)),
        environment=machine,
        conditions=Conditions(
            threads=2, affinity=(0, 1), precision="default", wait_policy="PASSIVE"
        ),
        blocks=tuple(
            Block(round=number, position=0, host_ns=(41_233_870, 41_000_001), wait_share=0.001)
            for number in range(blocks)
        ),
        time=Quantity(name="time", unit="s", value=0.041, low=0.040, high=0.042),
        ratio=Ratio(value=0.9, low=0.88, high=0.92, word="faster"),
        memory=(Quantity(name="resident", unit="B", value=5.0e8),),
        life=(Quantity(name="build", unit="s", value=12.5),),
        payback_iterations=3400.5,
    )


def comparison(*runs: Run, name: str = "20261120-100000-net", **changes: Any) -> Comparison:
    given = runs or (run(), run("compile:freezing"))
    made = Comparison(
        format_version=FORMAT_VERSION,
        id=name,
        created="2026-11-20T10:00:00+00:00",
        workload=given[0].workload,
        race=RaceSummary(
            rounds=3,
            seed=0,
            stopped_because="interval",
            interval_target=0.02,
            seconds=12.5,
            contended_share=0.1,
        ),
        runs=given,
        notes=("one note",),
    )
    return msgspec.structs.replace(made, **changes)
