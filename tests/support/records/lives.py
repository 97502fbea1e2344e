"""Life cycles for tests: one with everything in it, and drawn ones."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from golow.programs.life.curve import Curve
from golow.programs.life.life_record import CacheState, Change, LevelLife, Life, LifeCycle
from golow.records.comparison import Environment, Quantity
from golow.records.workload import ModelSource, TensorType, Workload

MACHINE = Environment(
    cpu_model="a processor",
    cpu_flags=(),
    cores=2,
    affinity=(0, 1),
    memory_bytes=1 << 33,
    governor="",
    kernel="6.1",
    container_limits={},
    gpu=(),
    driver="",
    python="3.12",
    versions={"torch": "2.12.0", "golow": "0.1.0"},
    thread_settings={},
)
WORKLOAD = Workload(
    model="lenet5",
    source=ModelSource(kind="zoo", name="lenet5"),
    mode="infer",
    batch=8,
    inputs=(TensorType(shape=(8, 1, 28, 28), dtype="float32"),),
)

# Between a nanosecond and more than an hour: what a stage may take.
SECONDS = st.floats(min_value=1e-9, max_value=5e3)


def life(
    cache: CacheState = "warm",
    number: int = 0,
    *,
    start: float = 1.0,
    build: float = 0.0,
    steady: float = 1e-3,
    first: float = 0.01,
    settling: float = 0.0,
    after: int | None = 1,
    setting: str = "",
) -> Life:
    """A life with these stages."""
    return Life(
        cache=cache,
        round=number,
        setting=setting,
        seconds={
            "capture": 0.0,
            "build": build,
            "import": start,
            "load": start / 10,
            "first_iteration": first,
            "settling": settling,
            "steady_iteration": steady,
            "end": 0.05,
        },
        iterations=(round(first * 1e9), *[max(1, round(steady * 1e9))] * 19),
        settled_after=after,
        figures=(
            Quantity(name="disk", unit="B", value=4096),
            Quantity(name="resident_peak", unit="B", value=2.5e8),
            Quantity(name="wait_share", unit="", value=0.01),
        ),
    )


def level(name: str, lives: Sequence[Life], steady: float | None = None) -> LevelLife:
    """A level that matches."""
    time = None if steady is None else _time(steady)
    return LevelLife(level=name, verdict="match", lives=tuple(lives), time=time)


def _time(seconds: float) -> Quantity:
    """A race knows it to a percent."""
    low, high = 0.995 * seconds, 1.005 * seconds
    return Quantity(name="time", unit="s", value=seconds, low=low, high=high)


def cycle(*levels: LevelLife, interrupted: bool = False) -> LifeCycle:
    return LifeCycle(
        id="one",
        created="2026-11-24",
        workload=WORKLOAD,
        environment=MACHINE,
        rounds=3,
        levels=levels,
        interrupted=interrupted,
    )


def whole() -> LifeCycle:
    """A slow start that pays, a level that fails, one that has none, and changes of the batch."""
    eager = level(
        "eager",
        [life(c, n, start=1 + n / 100, steady=1e-3) for n in range(2) for c in ("cold", "warm")],
        1e-3,
    )
    built = level(
        "libtorch",
        [life("cold", n, build=30, start=0.1, steady=5e-4, after=None) for n in range(2)]
        + [life("warm", n, start=0.1, steady=5e-4, settling=0.02, after=7) for n in range(2)],
        5e-4,
    )
    change = Change(
        round=0,
        batch=4,
        same_process=False,
        seconds={"capture": 0.2, "import": 0.1, "load": 0.1, "first_iteration": 0.01},
        iterations=(10**7, *[10**6] * 19),
        settled_after=3,
    )
    lost = LevelLife(
        level="compile:freezing-cudagraphs",
        verdict="match",
        failed="cold life, build: died: it was ended by SIGKILL",
        lives=(life("cold"),),
    )
    wrong = LevelLife(level="onednn", verdict="differs", reason="0/output/0 is wrong")
    return cycle(
        msgspec.structs.replace(eager, changes=(change,)),
        lost,
        built,
        wrong,
    )


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Any curve that lives can have."""
    return Curve(
        draw(SECONDS),
        draw(SECONDS),
        draw(st.just(0.0) | SECONDS),
        draw(st.integers(1, 60)),
        draw(SECONDS),
    )


@st.composite
def cycles(draw: st.DrawFn) -> LifeCycle:
    """Records as a run may leave them: any levels, failed or not, with any lives."""
    names = ["eager", "compile:freezing-cudagraphs", "libtorch", "my_own_very_long_worker_name"]
    levels = []
    for name in draw(st.lists(st.sampled_from(names), min_size=1, unique=True)):
        states = draw(st.lists(st.sampled_from(["cold", "warm"]), max_size=4))
        lives = [
            life(
                state,
                number,
                start=draw(SECONDS),
                build=draw(st.just(0.0) | SECONDS),
                steady=draw(SECONDS),
                first=draw(SECONDS),
                settling=draw(st.just(0.0) | SECONDS),
                after=draw(st.none() | st.integers(1, 9)),
            )
            for number, state in enumerate(states)
        ]
        failed = draw(st.sampled_from(["", "warm life, load: died: it ended with status 1"]))
        levels.append(LevelLife(level=name, verdict="match", lives=tuple(lives), failed=failed))
    return cycle(*levels, interrupted=draw(st.booleans()))
