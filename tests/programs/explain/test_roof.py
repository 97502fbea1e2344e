"""`golow lower --roof`: what each step of a plan takes and must take, what loses most first."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import golow
from golow.check.reference import Outputs, Standard
from golow.levels.direct.onednn import level as onednn
from golow.lower.plan.plan import Buffer, Operand, Step, make_plan
from golow.measure.peak import Peak
from golow.programs.explain import roof as program
from golow.programs.explain.explain_record import Roof, StepRoof
from golow.programs.explain.roof import step_roof
from golow.records.comparison import Check, LayerTime
from golow.records.errors import GolowError
from golow.report.comparison.roof import render, roof_rows
from support.command import golow as command
from support.direct.layouts import settle_layouts
from support.records.profiles import profile

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]
needs_onednn = pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")
RATES = st.floats(1e3, 1e15)


def product(rows: int, inner: int, columns: int) -> Step:
    """A linear layer on buffers 0 and 1."""
    read = Operand(0, (rows, inner), "ab", 4 * rows * inner)
    written = Operand(1, (rows, columns), "ab", 4 * rows * columns)
    return Step("linear", ("fc", "relu"), "forward", (read,), (written,), "gemm")


BUFFERS = [Buffer("x", 1 << 20, "input"), Buffer("y", 1 << 20, "arena")]

# ---------------------------------------------------------------- one step


@given(
    sizes=st.tuples(*[st.integers(1, 512)] * 3),
    peak=st.builds(Peak, operations=RATES, bytes=RATES),
    seconds=st.none() | st.floats(1e-9, 10),
)
def test_a_step_needs_the_slower_of_moving_and_computing(
    sizes: tuple[int, int, int], peak: Peak, seconds: float | None
) -> None:
    rows, inner, columns = sizes
    plan = make_plan("one", [product(*sizes)], BUFFERS, [1])
    found = step_roof(plan, 0, peak, seconds)
    moving = 4 * rows * (inner + columns) / peak.bytes
    computing = 2 * rows * inner * columns / peak.operations
    assert found.least == pytest.approx(max(moving, computing))
    assert found.bound == ("memory" if moving >= computing else "arithmetic")
    if seconds is None:
        assert found.lost is None
    else:
        assert found.lost == seconds - found.least


# ---------------------------------------------------------------- a level


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is raced here knows its layouts."""
    cache = tmp_path_factory.mktemp("cache")
    settle_layouts(cache, "lenet5", batch=2, threads=1)
    return cache


@pytest.fixture(scope="module")
def measured(forked: None, cache: Path) -> Roof:
    """LeNet-5's plan, raced and timed by real workers."""
    return golow.roof(
        "lenet5", level="onednn", batch=2, threads=1, time_limit=0.1, cache=cache, quiet=True
    ).roof


@needs_onednn
def test_every_step_of_an_iteration_has_a_time_and_a_roof(measured: Roof) -> None:
    assert measured.level == "onednn"
    steps = sorted(measured.steps, key=lambda step: step.position)
    # Where reorders stand is the library's choice for the processor at hand.
    assert [step.operation for step in steps if step.operation != "reorder"] == [
        "convolution", "average_pool", "convolution", "average_pool", "linear", "linear", "linear",
    ]  # fmt: skip
    assert all(step.seconds and step.least > 0 for step in measured.steps)
    lost = [step.lost for step in measured.steps]
    assert lost == sorted(lost, reverse=True)  # type: ignore[type-var]
    assert measured.layout_bytes == sum(s.bytes for s in measured.steps if s.layout_alone)
    assert measured.time is not None


@needs_onednn
def test_the_record_can_be_read_back(measured: Roof) -> None:
    assert msgspec.json.decode(msgspec.json.encode(measured), type=Roof) == measured
    assert [row["lost"] for row in roof_rows(measured)] == [step.lost for step in measured.steps]


def shown(roof: Roof, top: int = 15, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO())
    render(roof, top, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return str(text)


@needs_onednn
def test_the_table_fits_and_says_what_is_moved_for_layout(measured: Roof) -> None:
    text = shown(measured, top=3)
    assert f"and {len(measured.steps) - 3} more steps" in text
    assert "Moved for layout alone: " in text
    assert re.search(r"Before its first iteration: capture [\d.]+ \w+, build [\d.]+ \w+", text)
    first = measured.steps[0]
    assert f"{first.position}  {first.operation}" in text


@needs_onednn
def test_operations_are_whole_words_at_80_columns(measured: Roof) -> None:
    text = shown(measured, width=80)
    assert all(f" {step.operation} " in text for step in measured.steps)


def test_names_of_any_length_fit() -> None:
    step = StepRoof(
        position=1234,
        operation="convolution_backward_weights",
        modules=("encoder.layers.encoder_layer_11.self_attention.out_proj", "x"),
        phase="backward",
        by="fused_" * 20,
        operations=1.5e12,
        bytes=123456789.0,
        layout_alone=False,
        bound="memory",
        least=0.5,
        seconds=1.75,
    )
    blank = profile(())
    assert blank.environment is not None
    shown(
        Roof(
            format_version=1,
            workload=blank.workload,
            level="onednn",
            peak=Peak(operations=1e12, bytes=1e11),
            steps=(step,),
            environment=blank.environment,
        )
    )


@needs_onednn
def test_without_measuring_the_steps_that_need_most_come_first(cache: Path) -> None:
    found = golow.roof(
        "lenet5", level="vendor", batch=2, threads=1, measure=False, cache=cache, quiet=True
    )
    assert found.roof.time is None
    assert {step.seconds for step in found.rows} == {None}
    least = [step.least for step in found.rows]
    assert least == sorted(least, reverse=True)
    assert "at least" in shown(found.roof)
    assert list(found.to_pandas()["bytes"]) == [step.bytes for step in found.rows]


# ---------------------------------------------------------------- what cannot be


@needs_onednn
def test_times_of_another_plan_are_refused(measured: Roof, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's steps are planted: one fewer than the plan has."""
    layers = tuple(
        LayerTime(modules=s.modules, phase=s.phase, operation=s.operation, ns=(1,))
        for s in sorted(measured.steps, key=lambda step: step.position)
    )

    class Planted:
        level, notes, time, environment = "onednn", (), None, measured.environment
        life, build_cached = (), False

    planted = Planted()
    planted.layers = layers[:-1]  # type: ignore[attr-defined]
    monkeypatch.setattr(program, "_measured", lambda *_: planted)
    with pytest.raises(GolowError, match="different steps") as raised:
        golow.roof("lenet5", level="onednn", batch=2, threads=1, quiet=True)
    assert "OMP_NUM_THREADS" in raised.value.hint


@needs_onednn
def test_a_level_that_does_not_match_has_no_roof(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, judged = Standard.judge, list[object]()

    def planted(standard: Standard, outputs: Outputs) -> tuple[Check, list[str]]:
        """Eager is judged first, and as ever."""
        judged.append(outputs)
        found = real(standard, outputs)
        return (Check(verdict="differs", reason="planted"), []) if len(judged) > 1 else found

    monkeypatch.setattr(Standard, "judge", planted)
    with pytest.raises(GolowError, match="onednn: differs: planted"):
        golow.roof(
            "lenet5", level="onednn", batch=2, threads=1, time_limit=0.1, cache=cache, quiet=True
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--roof", "--level vendor"),
        ("--roof --level eager", "levels: onednn, cudnn"),
        ("--roof --level onednn --show", "leave out --show"),
        ("--top 3", "--roof"),
        ("--no-measure", "--roof"),
        ("--json -", "--roof"),
        ("--kernels", "--show"),
        ("--kernels --show --level libtorch", "levels that do: onednn, cudnn"),
    ],
)
def test_options_that_do_not_fit_are_named(options: str, words: str) -> None:
    ended = command("lower", "lenet5", *options.split())
    assert ended.status == 2
    assert words in ended.error


@needs_onednn
def test_the_command_writes_the_record(tmp_path: Path) -> None:
    file = tmp_path / "roof.json"
    arguments = (
        "lower lenet5 --batch 2 --level onednn --roof --no-measure --threads 1 --top 2 --json"
    )
    ended = command(*arguments.split(), str(file))
    assert ended.status == 0
    assert " more steps; --top shows more" in ended.output
    assert json.loads(file.read_bytes())["level"] == "onednn"
