"""The roofline of a profile: its arithmetic, and what is shown of it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text
from rich.console import Console

from golow.lower.analysis.arithmetic import LayerWork
from golow.measure.peak import Peak
from golow.programs.profiling.difference import difference
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.roofline import LevelRoofline, RooflineDot, rooflines, step_rate
from golow.records.comparison import LayerTime
from golow.records.errors import GolowError
from golow.records.workload import LayerPhase, Precision
from golow.report.profiling.difference import render_difference
from golow.report.profiling.figures import figures
from golow.report.profiling.table import render
from support.pages.figure_checks import defects, described
from support.records.profiles import PHASES, level, profile

PEAK = Peak(operations=1e12, bytes=1e11)
POSITIVE = st.floats(1e-6, 1e15)

# ---------------------------------------------------------------- a dot


def dot(operations: float, size: float, seconds: float, peak: Peak = PEAK) -> RooflineDot:
    return RooflineDot(
        level="eager",
        layer="conv",
        phase="forward",
        operations=operations,
        bytes=size,
        seconds=seconds,
        peak=peak,
    )


@given(
    operations=POSITIVE, size=POSITIVE, peak=st.builds(Peak, operations=POSITIVE, bytes=POSITIVE)
)
def test_a_dot_on_the_roof_reaches_all_of_it(operations: float, size: float, peak: Peak) -> None:
    least = max(operations / peak.operations, size / peak.bytes)
    assert dot(operations, size, least, peak).share == pytest.approx(1)
    assert dot(operations, size, 4 * least, peak).share == pytest.approx(0.25)


@given(operations=POSITIVE, size=POSITIVE, seconds=POSITIVE)
def test_the_bound_is_what_takes_longer(operations: float, size: float, seconds: float) -> None:
    found = dot(operations, size, seconds)
    moving, computing = size / PEAK.bytes, operations / PEAK.operations
    if moving != pytest.approx(computing):
        assert found.bound == ("memory" if moving > computing else "arithmetic")
    assert found.rate * seconds == pytest.approx(operations)
    assert found.intensity * size == pytest.approx(operations)


# ---------------------------------------------------------------- of a profile

MODULES = ("conv1", "bn1", "relu", "fc", "")
STEPS = st.builds(
    lambda modules, phase, ns: step(*modules, phase=phase, ns=ns),
    st.lists(st.sampled_from(MODULES), min_size=1, max_size=3, unique=True),
    st.sampled_from(PHASES),
    st.integers(0, 10**9),
)
WORK = st.dictionaries(
    st.tuples(st.sampled_from(MODULES), st.sampled_from(PHASES)),
    st.tuples(st.sampled_from((0.0, 3e6, 5e9)), st.sampled_from((0.0, 7e3, 2e6))),
    min_size=1,
)
Work = Mapping[tuple[str, LayerPhase], tuple[float, float]]


def step(
    *modules: str, phase: LayerPhase = "forward", ns: int = 10**6, kernels: float | None = None
) -> LayerTime:
    return LayerTime(
        modules=modules, phase=phase, operation="conv", ns=(9 * ns, ns, ns), kernels=kernels
    )


def made(
    work: Work,
    *levels: LevelProfile,
    peak: Peak | None = PEAK,
    precision: Precision = "default",
) -> Profile:
    return msgspec.structs.replace(
        profile(levels, precision=precision),
        work=tuple(
            LayerWork(module=module, phase=phase, operations=operations, bytes=size)
            for (module, phase), (operations, size) in work.items()
        ),
        peak=peak,
    )


def timed(*steps: LayerTime, name: str = "eager", missing: str = "") -> LevelProfile:
    return msgspec.structs.replace(level(name), layers=steps, layers_missing=missing)


def of(work: Work, *steps: LayerTime, precision: Precision = "default") -> LevelRoofline:
    [found] = rooflines(made(work, timed(*steps), precision=precision))
    return found


@given(work=WORK, steps=st.lists(STEPS, min_size=1, max_size=9))
def test_work_and_time_count_once(work: Work, steps: list[LayerTime]) -> None:
    found = of(work, *steps)
    covered = {(module, one.phase) for one in steps for module in one.modules}
    most = sum(operations for place, (operations, _) in work.items() if place in covered)
    assert sum(one.operations for one in found.dots) <= most * (1 + 1e-9)
    if all(size for _, size in work.values()) and all(one.ns[1] for one in steps):
        assert sum(one.operations for one in found.dots) == pytest.approx(most)
    seconds = sum(one.seconds for one in found.dots)
    assert seconds + found.without + found.partial == pytest.approx(found.seconds)
    assert found.seconds == pytest.approx(sum(one.ns[1] for one in steps) / 1e9)
    assert len({(one.layer, one.phase) for one in found.dots}) == len(found.dots)


def test_a_fused_step_has_the_work_of_all_its_layers() -> None:
    work: Work = {("conv1", "forward"): (6e9, 1e6), ("fc", "forward"): (2e9, 3e6)}
    [one] = of(work, step("conv1", "bn1", "fc")).dots
    assert (one.layer, one.operations, one.bytes) == ("conv1", 8e9, 4e6)
    first, second = of(work, step("conv1", "fc"), step("fc", ns=2 * 10**6)).dots
    assert (first.operations, second.operations, second.seconds) == (6e9, 2e9, 0.002)


def test_the_steps_of_a_layer_are_one_dot_and_a_layer_without_products_is_none() -> None:
    work: Work = {("conv1", "forward"): (6e9, 1e6), ("relu", "forward"): (0.0, 1e6)}
    found = of(work, step("conv1"), step("conv1"), step("relu", ns=3 * 10**6))
    assert [(one.layer, one.seconds) for one in found.dots] == [("conv1", 0.002)]
    assert (found.without, found.seconds, found.partial) == (0.003, 0.005, 0.0)


def test_phases_are_apart() -> None:
    work: Work = {("fc", "forward"): (1e9, 1e6), ("fc", "backward"): (2e9, 1e6)}
    found = of(work, step("fc"), step("fc", phase="backward"))
    assert [(one.phase, one.operations) for one in found.dots] == [
        ("forward", 1e9),
        ("backward", 2e9),
    ]


@pytest.mark.parametrize(("precision", "size"), [("default", 8.0), ("bf16", 4.0), ("fp16", 4.0)])
def test_half_precision_moves_half_the_bytes(precision: Precision, size: float) -> None:
    [one] = of({("fc", "forward"): (1e9, 8.0)}, step("fc"), precision=precision).dots
    assert one.bytes == size


def test_a_layer_of_which_some_kernels_are_not_known_has_no_dot() -> None:
    """Otherwise one of the kernels of a convolution's backward would seem to do all its work."""
    work: Work = {("conv1", "forward"): (6e9, 1e6), ("fc", "forward"): (2e9, 3e6)}
    eager = timed(step("conv1", kernels=4), step("fc", kernels=2))
    fused = step("", ns=5 * 10**6, kernels=90)
    compiled = timed(
        step("conv1", kernels=1),
        step("fc", kernels=2),
        fused,
        name="compile",
        missing="it has fused its layers",
    )
    first, second = rooflines(made(work, eager, compiled))
    assert [one.layer for one in first.dots] == ["conv1", "fc"]
    assert [one.layer for one in second.dots] == ["fc"]
    assert (second.partial, second.without) == (pytest.approx(0.006), 0.0)


def test_without_peak_work_or_layers_there_is_no_roofline() -> None:
    work: Work = {("fc", "forward"): (1e9, 1e6)}
    assert rooflines(made(work, timed(step("fc")), peak=None)) == ()
    assert rooflines(made({}, timed(step("fc")))) == ()
    assert rooflines(made(work, level())) == ()
    assert rooflines(made(work, timed(step("fc")), peak=Peak(operations=0.0, bytes=1.0))) == ()


def test_the_rate_of_a_step_is_that_of_all_its_work_without_a_profiler() -> None:
    work: Work = {("fc", "forward"): (1e9, 1e6), ("fc", "backward"): (2e9, 1e6)}
    found = made(work, level(seconds=0.5))
    assert step_rate(found, found.levels[0]) == 6e9
    assert step_rate(made({}), found.levels[0]) is None
    assert step_rate(found, LevelProfile(level="eager", verdict="failed")) is None


# ---------------------------------------------------------------- tables


def printed(shown: Profile, top: int = 10) -> str:
    text = io.StringIO()
    render([shown], by="roofline", top=top, console=Console(file=text, width=100))
    return text.getvalue()


def test_the_table_has_the_slowest_layers_their_share_of_the_roof_and_the_bound() -> None:
    work: Work = {("conv1", "forward"): (4e8, 1e6), ("fc", "forward"): (2e7, 4e6)}
    steps = (step("conv1"), step("fc", ns=2 * 10**6), step("relu", ns=10**6))
    shown = printed(made(work, timed(*steps)))
    lines = [line.split() for line in shown.splitlines()]
    rows = [line for line in lines if line[:1] in (["conv1"], ["fc"])]
    assert [line[0] for line in rows] == ["fc", "conv1"]
    assert rows[0][1:] == "forward 2.00 ms 50% 20.0 M 5 10.0 GFLOP/s 2% memory".split()
    assert rows[1][1:] == "forward 1.00 ms 25% 400 M 400 400 GFLOP/s 40% arithmetic".split()
    assert "1.00 TFLOP/s, 100 GB/s" in shown
    assert "25% of the layers' time is in layers without products" in shown
    assert "More than 100%" not in shown
    assert "and 1 more" in printed(made(work, timed(*steps)), top=1)


def test_the_summary_has_the_arithmetic_of_the_step() -> None:
    found = printed(made({("fc", "forward"): (1e9, 1e6)}, level(seconds=0.01)))
    assert re.search(r"arithmetic of the step +100 GFLOP/s", found)
    assert re.search(r"of the measured peak +10%", found)
    assert "arithmetic" not in printed(made({}, level()))


def test_a_dot_above_the_roof_is_explained() -> None:
    assert "More than 100%" in printed(made({("fc", "forward"): (1e12, 1e6)}, timed(step("fc"))))


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (made({}, timed(step("fc"))), "the graph could not be captured"),
        (made({("fc", "forward"): (1.0, 1.0)}, timed(step("fc")), peak=None), "could not be meas"),
        (made({("fc", "forward"): (1.0, 1.0)}, level()), "no level has times by layer"),
    ],
)
def test_a_profile_without_a_roofline_says_why(shown: Profile, said: str) -> None:
    assert said in printed(shown)


@pytest.mark.parametrize("by", ["roofline", "memory"])
def test_several_precisions_are_shown_and_a_difference_is_refused(by: str) -> None:
    shown = [made({}, level()), made({}, level(), precision="bf16")]
    text = io.StringIO()
    render(shown, by=by, console=Console(file=text, width=100))
    assert "precision, side by side" in text.getvalue()
    with pytest.raises(GolowError, match=f"cannot be compared by {by!r}"):
        render_difference(difference(shown[:1], shown[:1]), by=by)


def test_the_table_fits_and_says_which_level_has_none() -> None:
    path = "model.encoder.layers.0.attention.output.projection"
    work: Work = {(path, "backward"): (123.4e9, 1.0)}
    fused = timed(name="compile", missing="torch.compile has fused its layers")
    shown = printed(made(work, timed(step(path, phase="backward", ns=12345)), fused))
    assert max(map(len, shown.splitlines())) <= 100 and "…" not in shown
    assert "compile has no roofline: torch.compile has fused its layers" in shown


# ---------------------------------------------------------------- the figure


def many(names: Sequence[str] = ("eager", "libtorch", "onednn")) -> Profile:
    """A network in training, whose layers are close together."""
    modules = [f"layer{n // 4}.{n % 4}.conv" for n in range(16)]
    work: Work = {
        (module, phase): (1e8 * (1 + n % 3), 1e6 * (1 + n % 5))
        for n, module in enumerate(modules)
        for phase in PHASES[:2]
    }
    levels = [
        timed(
            *(
                step(module, phase=phase, ns=10**6 * (1 + place) + n * 1000)
                for phase in PHASES[:2]
                for n, module in enumerate(modules)
            ),
            name=name,
        )
        for place, name in enumerate(names)
    ]
    return made(work, *levels)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shown",
    [
        many(),
        many(("eager", "compile:freezing", "my own level", "openvino")),
        made({("fc", "forward"): (1e12, 1e3)}, timed(step("fc"))),  # above the roof
        made({("a" * 90, "forward"): (1.0, 1e9)}, timed(step("a" * 90, ns=1))),
    ],
)
def test_nothing_in_the_figure_is_cut_or_covered(shown: Profile) -> None:
    figure = figures([shown])["roofline"]
    assert defects(figure) == []
    [panel] = figure.axes
    inside = panel.get_window_extent().expanded(1.01, 1.01)
    for sign in panel.texts:
        corners = Text.get_window_extent(sign).corners()
        assert all(inside.contains(*corner) for corner in corners), sign
    assert "measured peaks" in described(figure)


def test_dots_lie_where_the_record_says_and_the_slowest_have_names() -> None:
    work: Work = {(name, phase): (4e8, 1e6) for name in ("conv1", "fc") for phase in PHASES[:2]}
    steps = (step("conv1"), step("fc", ns=2 * 10**6), step("conv1", phase="backward"))
    [panel] = figures([made(work, timed(*steps))])["roofline"].axes
    drawn = {tuple(item.get_offsets()[0]): item for item in panel.collections}  # type: ignore[attr-defined]
    assert set(drawn) == {(400.0, 4e11), (400.0, 2e11)}
    filled = [len(item.get_facecolor()) for item in panel.collections]
    assert sorted(filled) == [0, 1, 1]  # the backward one is hollow
    texts = [text.get_text() for text in panel.texts]
    assert sorted(texts) == ["1.00 TFLOP/s", "100 GB/s", "conv1", "conv1", "fc"]


@pytest.mark.slow
def test_several_precisions_have_a_figure_each_and_a_profile_without_roofline_has_none() -> None:
    half = msgspec.structs.replace(many(), workload=profile([], precision="bf16").workload)
    drawn = [name for name in figures([many(), half]) if "roofline" in name]
    assert drawn == ["roofline-default", "roofline-bf16"]
    assert "roofline" not in figures([profile([level()])])
