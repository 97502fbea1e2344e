"""A generation for tests, with all there may be in one."""

from __future__ import annotations

from golow.programs.generation.generation_record import (
    FORMAT_VERSION,
    Departure,
    Generation,
    TextCase,
    TextRun,
)
from golow.records.comparison import Block, Check, Quantity, RaceSummary, Ratio
from golow.records.text import Sampling, TextWorkload
from golow.records.workload import ModelSource
from support.records.lives import MACHINE

TOKENS, ROUNDS = 6, 5


def workload(batch: int) -> TextWorkload:
    """Texts of a GPT-2 with a token a byte."""
    return TextWorkload(
        model="gpt2_small",
        source=ModelSource(kind="zoo", name="gpt2_small", arguments={"classes": 256}),
        vocabulary=256,
        batch=batch,
        prompt=4,
        tokens=TOKENS,
        threads=2,
        sampling=Sampling(temperature=0.8, top_k=40, top_p=0.95),
        alphabet="bytes",
        initialisation="transformer, seed 0",
        parameters=86_000_000,
        weight_bytes=344_000_000,
        cache_bytes=73_728 * batch,
    )


def timed(level: str, seconds: float, batch: int, departure: Departure | None = None) -> TextRun:
    """A level that matches, with these seconds a token."""
    times = (round(4e9 * seconds), *[round(1e9 * seconds)] * (TOKENS - 1))

    def quantity(name: str, value: float) -> Quantity:
        return Quantity(name=name, unit="s", value=value, low=0.9 * value, high=1.1 * value)

    return TextRun(
        level=level,
        verdict="match",
        check=Check(verdict="match"),
        texts=(tuple(b" sea i"),) * batch,
        written="The  sea i",
        departure=departure,
        replayed=ROUNDS * TOKENS * batch,
        worst=1e-5,
        first_token=quantity("time", 4 * seconds),
        token=quantity("time", seconds),
        slow_token=quantity("time", 1.5 * seconds),
        ratio=Ratio(value=0.8, low=0.78, high=0.82, word="faster"),
        figures=(
            Quantity(name="start", unit="s", value=3.5),
            Quantity(name="resident", unit="B", value=900e6),
            Quantity(name="package_energy", unit="J", value=0.7),
        ),
        blocks=tuple(
            Block(round=number, position=0, host_ns=times, wall_ns=sum(times) + 10**6)
            for number in range(ROUNDS)
        ),
    )


def case(batch: int) -> TextCase:
    """Levels with every verdict."""
    near = Departure(text=0, token=3, error=1e-5, explained=True)
    return TextCase(
        workload=workload(batch),
        runs=(
            timed("eager", 0.02, batch),
            timed("eager:static", 0.021, batch),
            timed("compile:static", 0.016, batch, near),
            TextRun(level="mine", verdict="differs", reason="token 3 of free text 0 is another"),
            TextRun(level="other", verdict="failed", reason="it ended with status 1", log="line"),
            TextRun(level="third", verdict="unavailable", reason="it needs more"),
        ),
        race=RaceSummary(
            rounds=ROUNDS,
            seed=0,
            stopped_because="interval",
            interval_target=0.02,
            seconds=9.0,
            contended_share=0.0,
        ),
        error_limit=1e-4,
    )


EVERYTHING = Generation(
    format_version=FORMAT_VERSION,
    id="20261129-200000-gpt2_small-generate",
    created="2026-11-29T20:00:00+00:00",
    environment=MACHINE,
    cases=(case(1), case(8)),
    prompt=tuple(b"The "),
    read_rate=Quantity(name="read", unit="B/s", value=2e10),
    notes=("a note",),
)
