"""The settings of a load test, and the plan that they determine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from golow.programs.load.load_record import LoadPlan, Scenario, TextPlan
from golow.programs.load.service_address import require_url
from golow.programs.load.text_settings import A_DAY, TIMES, require_text_settings
from golow.records.errors import GolowError
from golow.records.near_names import meant

MODULE, EXTRA = "mlperf_loadgen", "pip install 'golow[load]'"
LARGEST, LONGEST = 1024, 60.0  # samples in a batch, and seconds of its delay
USUAL_BATCH = 8
SLOWEST = 1e-3  # requests per second
FASTEST = 1e6  # ten times what LoadGen's process sends
ALONE: tuple[Scenario, ...] = ("single-stream", "offline")


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """levels: names; None means the default levels that `golow.compile` supports. scenarios: None
    means single-stream, offline, and server if there is a latency or a rate. latency: seconds.
    max_batch: 8 by default, of texts 1. texts: of a model that generates. The rest as of
    `LoadPlan`; cache: folder for what is built."""

    levels: Sequence[str] | None = None
    scenarios: Sequence[str] | None = None
    latency: float | None = None
    percentile: float = 99.0
    rates: Sequence[float] = ()
    max_batch: int | None = None
    delay: float = 0.002
    contexts: Sequence[int] = (1,)
    lengths: tuple[int, int] | None = None
    seconds: float = 5.0
    repeats: int = 3
    patience: float = 10.0
    url: str = ""
    texts: TextPlan | None = None
    cache: Path | None = None


def plan_of(settings: LoadSettings, seed: int) -> LoadPlan:
    """The plan. Raises `GolowError` for settings that make no sense."""
    asks_for_server = settings.latency is not None or bool(settings.rates)
    usual = (*ALONE, "server") if asks_for_server else ALONE
    most = USUAL_BATCH
    if settings.texts is not None:
        usual, most = ("server",), 1
    if settings.max_batch is not None:
        most = settings.max_batch
    named = settings.scenarios or usual
    plan = LoadPlan(
        scenarios=tuple(dict.fromkeys(_scenario(name) for name in named)),
        latency=settings.latency,
        percentile=settings.percentile / 100,
        rates=tuple(sorted(set(settings.rates))),
        most=most,
        delay=settings.delay,
        buckets=buckets(most),
        lengths=settings.lengths,
        length_buckets=length_buckets(settings.lengths),
        contexts=tuple(sorted(set(settings.contexts))),
        streams=most,
        seconds=settings.seconds,
        repeats=settings.repeats,
        patience=settings.patience,
        url=settings.url,
        seed=seed,
        texts=settings.texts,
    )
    _require_sense(plan)
    if plan.texts is not None:
        require_text_settings(plan, plan.texts)
    if plan.url:
        require_url(plan.url)
    return plan


def buckets(most: int) -> tuple[int, ...]:
    """The batch sizes that levels are compiled for: powers of two, and the largest."""
    powers = (2**power for power in range(max(1, most).bit_length()))
    return tuple(sorted({*(size for size in powers if size < most), most}))


def length_buckets(limits: tuple[int, int] | None) -> tuple[int, ...]:
    """The lengths that levels are compiled for: powers of two that hold the shortest sample, and
    the longest sample. Raises `GolowError` for limits that make no sense."""
    if limits is None:
        return ()
    shortest, longest = limits
    if not 1 <= shortest <= longest:
        raise GolowError(
            f"no sample has {shortest} to {longest} tokens",
            "for example --sequence 16..128.",
            python_hint="for example lengths=(16, 128).",
        )
    powers = (2**power for power in range(longest.bit_length()))
    return tuple(sorted({*(size for size in powers if shortest <= size < longest), longest}))


def require_loadgen() -> None:
    """Raise `GolowError` if MLPerf's LoadGen is not installed."""
    if find_spec(MODULE) is None:
        raise GolowError("MLPerf's LoadGen is not installed", EXTRA)


def _scenario(name: str) -> Scenario:
    known: tuple[Scenario, ...] = get_args(Scenario)
    for one in known:
        if one == name:
            return one
    raise GolowError(
        f"there is no scenario {name!r}", f"{meant(name, known)}scenarios are {', '.join(known)}."
    )


def _all_within(numbers: Sequence[int], most: int) -> bool:
    return bool(numbers) and all(1 <= number <= most for number in numbers)


def _require_sense(plan: LoadPlan) -> None:
    """Raise `GolowError` for numbers that make no sense, with what to type instead."""
    cores = len(os.sched_getaffinity(0))
    latency = plan.latency if plan.latency is not None else 1.0
    rates = all(SLOWEST <= rate <= FASTEST for rate in plan.rates)
    of_rates = f"from {SLOWEST:g} to {FASTEST:,.0f}"
    for sound, option, bounds, typed, python in (
        (0 < latency <= A_DAY, "--latency", TIMES, "20ms", "0.02"),
        (0.5 <= plan.percentile < 1, "--percentile", "at least 50 and below 100", "99", "99"),
        (rates, "--rate", of_rates, "50,100", "[50, 100]"),
        (1 <= plan.most <= LARGEST, "--max-batch", f"from 1 to {LARGEST}", "8", "8"),
        (0 <= plan.delay < LONGEST, "--delay", f"below {LONGEST:g} s", "2ms", "0.002"),
        (_all_within(plan.contexts, cores), "--contexts", f"from 1 to {cores} here", "1", "1"),
        (0 < plan.seconds <= A_DAY, "--seconds", TIMES, "5", "5"),
        (plan.repeats >= 1, "--repeats", "at least 1", "3", "3"),
        (0 < plan.patience <= A_DAY, "--patience", TIMES, "10s", "10"),
    ):
        if not sound:
            keyword = option.removeprefix("--").replace("-", "_").replace("rate", "rates")
            raise GolowError(
                f"{option} must be {bounds}",
                f"for example {option} {typed}.",
                python_hint=f"for example {keyword}={python}.",
            )
    if plan.texts is None:
        _require_server(plan)


def _require_server(plan: LoadPlan) -> None:
    """Raise `GolowError` for the server scenario without a rate or a limit, and for these without
    the scenario, which no other has."""
    with_server = "server" in plan.scenarios
    given = {"--latency": plan.latency is not None, "--rate": bool(plan.rates)}
    if with_server and not any(given.values()):
        raise GolowError(
            "the server scenario needs a rate, or a latency that must be held",
            "for example --latency 20ms, or --rate 50,100.",
            python_hint="for example latency=0.02, or rates=[50, 100].",
        )
    for option, is_given in given.items():
        if is_given and not with_server:
            raise GolowError(
                f"{option} is for the server scenario",
                f"add server to --scenario, or leave out {option}.",
                python_hint='add "server" to scenarios=, or leave it out.',
            )
