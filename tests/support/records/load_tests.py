"""Load tests for tests: one with everything in it, made of planted latencies."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from golow.programs.load.load_record import (
    LevelLoad,
    LoadPlan,
    LoadRun,
    LoadTest,
    Outcome,
    Peak,
    Scenario,
    ServedBatch,
    TextPlan,
)
from golow.programs.load.verdict import rate_of, rate_ratio
from golow.records.comparison import Check, Quantity
from support.records.lives import MACHINE, WORKLOAD

RATES = (50.0, 200.0)
TOKENS = 9
MILLISECOND = 1_000_000


def run(
    scenario: Scenario = "server",
    rate: float | None = None,
    number: int = 1,
    *,
    latency: float = 5.0,
    count: int = 800,
    outcome: Outcome = "measured",
    reason: str = "",
) -> LoadRun:
    """A run whose requests take about so many milliseconds, one in fifty four times as long."""
    draw = random.Random(f"{scenario} {rate} {number} {latency}")  # noqa: S311 - no secret
    values = [int(latency * MILLISECOND * draw.uniform(0.9, 1.1)) for _ in range(count)]
    values = [4 * one if place % 50 == 0 else one for place, one in enumerate(values)]
    gap = int(1e9 / (rate or 100.0))
    return LoadRun(
        scenario=scenario,
        rate=rate,
        round=number,
        outcome=outcome,
        reason=reason,
        answered=count,
        seconds=max(1, count) * gap / 1e9,
        arrivals=tuple(gap * place for place in range(count)),
        latencies=tuple(values),
        batches=tuple(batches(count, gap)),
        late=0.0001,
        overhead=0.0003,
        waiting=0.002,
        checked=32,
        valid=True,
    )


def batches(count: int, gap: int) -> list[ServedBatch]:
    """Batches of one to four."""
    found, place, number = [], 0, 0
    while place < count:
        size = min(1 + number % 4, count - place)
        found.append(
            ServedBatch(
                closed=gap * place,
                size=size,
                bucket=size if size != 3 else 4,
                left=number % 3,
                waited=2 * MILLISECOND,
                assembling=30_000,
                running=MILLISECOND,
                answering=50_000,
                length=1,
                tokens=size,
            )
        )
        place, number = place + size, number + 1
    return found


def level(
    name: str, latency: float = 5.0, peak: Sequence[float] = (), first: Sequence[float] = ()
) -> LevelLoad:
    """A level that is right, with runs in every scenario and the rounds of a search."""
    runs = [
        run(scenario, rate, number, latency=latency, outcome="held" if rate else "measured")
        for number in (1, 2)
        for scenario, rate in (
            ("single-stream", None),
            ("offline", None),
            *(("server", rate) for rate in RATES),
        )
    ]
    sizes = {"resident": 300.0 * 2**20, "resident_peak": 310.0 * 2**20}
    return LevelLoad(
        level=name,
        check=Check(verdict="match"),
        runs=tuple(runs),
        peak=Peak(rate=rate_of(peak, 0), rounds=tuple(peak), ratio=rate_ratio(peak, first, 0))
        if peak
        else None,
        cores=(0, 1),
        build=2.5,
        memory=tuple(Quantity(name=n, unit="B", value=size) for n, size in sizes.items()),
    )


def load_test(*levels: LevelLoad, **changes: object) -> LoadTest:
    """A load test of these levels."""
    plan = LoadPlan(
        scenarios=("single-stream", "offline", "server"), latency=0.02, rates=RATES, repeats=2
    )
    given: dict[str, object] = {
        "id": "20261129-200000-lenet5-load",
        "created": "2026-11-29T20:00:00+00:00",
        "workload": WORKLOAD,
        "environment": MACHINE,
        "plan": plan,
        "levels": levels,
        "samples": 32,
        "generator": "LoadGen 6.0.17",
        "generator_cores": (0, 1),
        "shared": True,
        "energy_missing": "RAPL cannot be read",
    }
    return LoadTest(**{**given, **changes})  # type: ignore[arg-type]


EAGER, DIRECT = [200.0, 210.0, 190.0, 205.0, 195.0], [400.0, 425.0, 385.0, 405.0, 398.0]


def everything() -> LoadTest:
    """Levels that hold, one that is wrong, one that died under load, one that held no rate."""
    dead = level("openvino", 4.0)
    wrong = Check(verdict="differs", reason="2 of 32 answers are missing, such as of sample 3")
    return load_test(
        level("eager", 8.0, EAGER, EAGER),
        level("onednn", 4.0, DIRECT, EAGER),
        LevelLoad(level="compile", check=wrong),
        LevelLoad(
            level="openvino",
            check=Check(verdict="match"),
            runs=(
                *dead.runs[:2],
                run(rate=200.0, count=0, outcome="failed", reason="died: it was ended by SIGKILL"),
            ),
            notes=("compiled for each batch size and context: 4 copies of the weights",),
        ),
        LevelLoad(
            level="torchscript",
            check=Check(verdict="match"),
            runs=(run(rate=50.0, count=40, outcome="unclear", reason="too few requests"),),
            peak=Peak(reason="unclear: too few requests"),
        ),
        notes=("the model changes input 0 in place",),
    )


def texts() -> LoadTest:
    """A load of texts: a level that holds its limits, one that is slower, one that is overloaded at
    the higher rate."""
    plan = LoadPlan(
        scenarios=("server",),
        rates=RATES,
        repeats=2,
        most=1,
        buckets=(1,),
        texts=TextPlan(prompt=(16, 64), tokens=TOKENS, ttft=0.02, tpot=0.001),
    )
    slow = run(rate=RATES[1], count=0, outcome="overload")
    return load_test(
        _texts_of("eager", 8.0),
        _texts_of("onednn", 4.0, Peak(rate=rate_of(DIRECT, 0), rounds=tuple(DIRECT))),
        LevelLoad(level="eager:static", check=Check(verdict="match"), runs=(slow,)),
        plan=plan,
    )


def _texts_of(name: str, latency: float, peak: Peak | None = None) -> LevelLoad:
    """A level whose texts take about so many milliseconds, half of them up to the first token."""
    whole = [
        run(rate=rate, number=number, latency=latency, outcome="held")
        for number in (1, 2)
        for rate in RATES
    ]
    runs = (
        msgspec.structs.replace(
            one, first_tokens=tuple(taken // 2 for taken in one.latencies), tokens=TOKENS
        )
        for one in whole
    )
    return LevelLoad(level=name, check=Check(verdict="match"), runs=tuple(runs), peak=peak)
