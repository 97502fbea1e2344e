"""The table by layer says what the times say, fits, and loses no level."""

from __future__ import annotations

import io
import re
from typing import Any

import msgspec
import pytest
from rich.console import Console

from golow.measure.environment import environment
from golow.records.comparison import Check, Comparison, Conditions, LayerTime, RaceSummary, Run
from golow.records.workload import ModelSource, TensorType, Workload
from golow.report.comparison.table import render
from golow.report.layers import layer_columns, layer_rows, render_layers

WORKLOAD = Workload(
    model="net",
    source=ModelSource(kind="zoo", name="net"),
    mode="train",
    batch=8,
    inputs=(TensorType(shape=(8, 3, 64, 64), dtype="float32"),),
)


def step(
    *modules: str, ms: float = 1.0, phase: Any = "forward", operation: str = "conv2d"
) -> LayerTime:
    ns = round(ms * 1e6)
    return LayerTime(modules=modules, phase=phase, operation=operation, ns=(9 * ns, ns, ns))


def run(level: str, *layers: LayerTime, missing: str = "") -> Run:
    return Run(
        format_version=1,
        id=level,
        created="",
        level=level,
        workload=WORKLOAD,
        check=Check(verdict="match"),
        environment=environment(),
        conditions=Conditions(threads=2, affinity=(0,), precision="default", wait_policy=""),
        layers=layers,
        layers_missing=missing,
    )


def printed(*runs: Run, by_layer: bool | None = None) -> str:
    race = RaceSummary(
        rounds=1,
        seed=0,
        stopped_because="interval",
        interval_target=0.1,
        seconds=1.0,
        contended_share=0.0,
    )
    shown = Comparison(
        format_version=1, id="c", created="", workload=WORKLOAD, race=race, runs=runs
    )
    text = io.StringIO()
    render(shown, Console(file=text, width=100), by_layer)
    return text.getvalue()


def line_of(text: str, label: str) -> list[str]:
    """The words of the one line that begins with the label."""
    [line] = [row for row in text.splitlines() if row.split()[:1] == [label]]
    return line.split()[1:]


def test_rows_are_medians_with_shares_and_a_total() -> None:
    text = printed(run("eager", step("a", ms=1), step("b", ms=2), step("a", ms=5)))
    assert line_of(text, "a") == ["conv2d", "6.00", "75.0%"]
    assert line_of(text, "b") == ["conv2d", "2.00", "25.0%"]
    assert line_of(text, "total") == ["8.00", "100%"]
    assert "median of 3 iterations" in text


def test_levels_stand_side_by_side_and_a_fused_step_counts_for_its_first_layer() -> None:
    eager = run("eager", step("conv"), step("bn"), step("relu"), step("", operation="Net"))
    fused = run("onednn", step("conv", "bn", "relu", ms=2), step("extra"))
    text = printed(eager, fused)
    assert line_of(text, "conv")[-4:] == ["1.00", "25.0%", "2.00", "66.7%"]
    assert line_of(text, "bn")[-2:] == line_of(text, "relu")[-2:] == ["fused:", "conv"]
    assert line_of(text, "(top)")[-1] == line_of(text, "extra")[-3] == "-"
    assert "fused: runs as one step" in text


def test_a_fused_layer_names_the_other_one_by_the_part_of_its_path_that_differs() -> None:
    eager = run("eager", step("a.conv"), step("a.bn"), step("b.relu"), step("c" * 40), step("c.bn"))
    fused = run("onednn", step("a.conv", "a.bn", "b.relu"), step("c" * 40, "c.bn"))
    text = printed(eager, fused)
    assert line_of(text, "a.bn")[-2:] == ["fused:", "conv"]
    assert line_of(text, "b.relu")[-2:] == ["fused:", "a.conv"]
    assert line_of(text, "c.bn")[-2:] == ["fused:", f"..{'c' * 14}"]
    assert max(map(len, text.splitlines())) <= 100


def test_the_kernels_of_a_layer_stand_behind_its_share() -> None:
    counted = [
        msgspec.structs.replace(step("a"), kernels=2.0),
        msgspec.structs.replace(step("a"), kernels=1.0),
        msgspec.structs.replace(step("b", ms=6), kernels=0.5),
    ]
    text = printed(run("eager", *counted), run("libtorch", step("a"), step("b")))
    assert line_of(text, "a")[-5:] == ["2.00", "25.0%", "3", "1.00", "50.0%"]
    assert line_of(text, "b")[-5:] == ["6.00", "75.0%", "0.5", "1.00", "50.0%"]
    assert line_of(text, "total")[-5:] == ["8.00", "100%", "3.5", "2.00", "100%"]
    assert "without the gaps" in " ".join(text.split())
    assert "the number of its kernels" in text and "step without profiler" not in text


def test_a_profile_has_the_step_below_the_total() -> None:
    runs = (run("eager", step("a", ms=3)), run("libtorch", step("a")))
    text = io.StringIO()
    render_layers(runs, Console(file=text, width=100), {"eager": 0.004})
    [row] = re.findall("step without profiler +([0-9].*)", text.getvalue())
    assert row.split() == ["4.00", "75.0%", "-"]


def test_a_level_with_layers_of_its_kernels_is_not_said_to_have_none() -> None:
    text = printed(run("compile", step("a"), missing="fused"), run("eager", step("a")))
    assert "has no times by layer" not in text


def test_the_phases_of_training_follow_one_another() -> None:
    backward = [step(name, phase="backward") for name in ("b", "a")]
    update = step("", phase="update", operation="sgd")
    # A program may make the gradient of the loss before anything else.
    first = step("", phase="backward", operation="ones")
    columns = layer_columns([run("libtorch", first, step("a"), step("b"), *backward, update)])
    assert [(row.module, row.phase) for row in layer_rows(columns)] == [
        ("a", "forward"),
        ("b", "forward"),
        ("", "backward"),
        ("b", "backward"),
        ("a", "backward"),
        ("", "update"),
    ]


def test_a_row_that_one_level_lacks_stands_where_the_other_has_it() -> None:
    columns = layer_columns(
        [run("eager", step("a"), step("d")), run("libtorch", step("a"), step("b"), step("d"))]
    )
    assert [row.module for row in layer_rows(columns)] == ["a", "b", "d"]


def test_many_layers_are_grouped_by_the_first_parts_of_their_paths() -> None:
    layers = [step(f"layer{i}.{j}.conv{k}") for i in range(4) for j in range(6) for k in range(5)]
    [column] = layer_columns([run("eager", *layers, step("fc"))])
    assert [row.module for row in column.seconds][:2] == ["layer0.0", "layer0.1"]
    assert len(column.seconds) == 25
    assert column.total == pytest.approx(121e-3)
    few = layer_columns([run("eager", *layers[:30])])
    assert len(few[0].seconds) == 30


@pytest.mark.parametrize("count", [1, 3, 9])
def test_the_tables_fit_and_no_level_is_lost(count: int) -> None:
    path = "model.encoder.layers.0.attention.output.projection"
    layers = (step(path, ms=12345.6, operation="ConvolutionReLU"), step("x", ms=1e-5))
    names = [f"level{i}:channels_last" for i in range(count)]
    text = printed(*(run(name, *layers) for name in names))
    assert max(map(len, text.splitlines())) <= 100
    by_layer = text.split("By layer")[1]
    assert all(name.partition(":")[0] in by_layer for name in names)
    assert by_layer.count(path[-20:]) == by_layer.count("total ")
    assert "<0.001" in by_layer
    assert "…" not in by_layer


def test_times_by_layer_are_shown_when_they_are_wished_and_missed_when_there_are_none() -> None:
    timed, whole = run("eager", step("a")), run("eager")
    assert "By layer" in printed(timed)
    assert "By layer" not in printed(timed, by_layer=False)
    assert "a comparison by layer" in printed(whole, by_layer=True)
    assert "layer" not in printed(whole)


def test_a_record_from_before_the_layers_is_read() -> None:
    data = msgspec.to_builtins(run("eager", step("a")))
    del data["layers"], data["layers_missing"]
    assert msgspec.convert(data, Run) == run("eager")
