"""A study in the page: its maps, crossover, cuts and surfaces have the numbers of the rows, a cell
opens to its comparison, and an exported study is read back."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from golow.report.page import study
from golow.report.published import levental2020_grid
from golow.report.study.crossover import crossings
from golow.report.study.planes import planes
from golow.report.study.rows import Measured, StudyRow, rows_of
from support.examples import examples
from support.pages.pages import EVIL
from support.records.drawn_studies import (
    GIB,
    cell,
    levental_like,
    measured,
    run,
    studies,
    unmeasured,
)
from support.records.overtaken import GRID, ROWS, overtaking

SECTIONS = {one["id"]: one for one in study.sections(ROWS, "r0", levental2020_grid())}


def maps(section: str) -> list[Any]:
    beside = [one for one in SECTIONS[section]["blocks"] if one["kind"] == "beside"]
    return [table for one in beside for table in one["blocks"]]


# ---------------------------------------------------------------- maps and crossover


def test_a_heavy_line_stands_where_another_level_is_fastest() -> None:
    fastest = maps("r0-0-fastest")[0]
    texts = [[one["text"].partition("\n")[0] for one in row[1:]] for row in fastest["rows"]]
    assert texts == [[EVIL] * 3, [EVIL] * 3, [EVIL, "eager", "eager"]]
    edges = {
        (down, right): one["edges"]
        for down, row in enumerate(fastest["rows"])
        for right, one in enumerate(row[1:])
        if one["edges"]
    }
    assert edges == {(2, 1): ["left", "top"], (2, 2): ["top"]}


@pytest.mark.slow
def test_a_map_stands_beside_the_published_one() -> None:
    shown = study.sections(rows_of("a", levental_like()), "r0", levental2020_grid())
    ratios = next(one for one in shown if one["id"] == "r0-0-ratio")["blocks"]
    captions = [[table["caption"] for table in one["blocks"]] for one in ratios[1:-1]]
    assert ["cudnn (infer)", "cudnn, as published: 2020 (V100) (infer)"] in captions


def test_the_crossover_is_where_the_ratio_passes_1() -> None:
    [plane] = planes(ROWS)
    found = list(crossings(plane, EVIL, "batch"))
    assert [one.at for one in found] == [32, 128]
    assert [one.value for one in found] == pytest.approx([64, 64])
    assert not any(one.faster for one in found)
    [chart] = [one for one in SECTIONS["r0-0-crossover"]["blocks"] if one["kind"] == "chart"][:1]
    assert "passes eager's" in chart["title"]


@examples(80, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.floats(-2, 2).filter(lambda slope: abs(slope) > 0.05),
    st.floats(math.log(9), math.log(100)),
)
def test_a_power_law_crosses_where_it_does(slope: float, place: float) -> None:
    cells = []
    for batch in GRID:
        asked = cell(batch, 32)
        ratio = math.exp(slope * (math.log(batch) - place))
        levels = [run(asked, "eager", 0.01, 1.0), run(asked, "cudnn", 0.01 * ratio, ratio)]
        cells.append(measured(asked, levels))
    [plane] = planes(rows_of("a", cells))
    [found] = crossings(plane, "cudnn", "batch")
    assert math.log(found.value) == pytest.approx(place)
    assert found.faster == (slope < 0)


def test_a_cell_opens_to_its_comparison() -> None:
    fastest = maps("r0-0-fastest")[0]
    name = fastest["rows"][2][2]["opens"]
    said, table = SECTIONS["r0-0-fastest"]["parts"][name]
    assert said["text"].startswith("batch 128, resolution 32")
    assert said["text"].endswith("eager is fastest here.")
    assert [row[1]["order"] for row in table["rows"]] == [0.01, 0.02]
    titles = [one["title"] for one in table["columns"]]
    assert {"over eager", "energy", "ready after", "rounds"} <= set(titles)
    assert maps("r0-0-ratio")[0]["rows"][2][2]["opens"] == name  # the same from every map


# ---------------------------------------------------------------- maps of measured values

SECOND = {"eager": 0.04, "cudnn": 0.02}
OF_THE_RECORD = {
    "time per sample": lambda one: one.time.value / one.workload.batch,
    "samples per second": lambda one: one.workload.batch / one.time.value,
    "memory": lambda one: one.quantity("device_used"),
    "GPU utilization": lambda one: one.quantity("utilization"),
    "energy per sample": lambda one: one.quantity("energy") / one.workload.batch,
}
"""Every measure, from a level's run in the record."""


def two_levels(batch: int, **more: Any) -> Measured:
    asked = cell(batch, 32)
    return measured(
        asked, [run(asked, v, t * batch, t / 0.04, memory=GIB, **more) for v, t in SECOND.items()]
    )


def values(cells: list[Measured], *, paper: bool = False) -> tuple[str, dict[str, Any], Any]:
    """Of the section of measured values: its note, its maps' rows without their labels by measure
    and caption, and how each was measured."""
    made = study.sections(rows_of("a", cells), "r0", levental2020_grid() if paper else None)
    [section] = [one for one in made if one["id"] == "r0-0-measures"]
    note, choice, how = section["blocks"]
    maps = {
        option["name"]: {
            table["caption"]: [row[1:] for row in table["rows"]]
            for level in option["block"]["blocks"]
            for table in level["blocks"]
        }
        for option in choice["options"]
    }
    return note["text"], maps, how["pairs"]


def test_a_map_of_every_measure_has_the_values_of_the_record() -> None:
    cells = levental_like((8, 32, 128), (64, 256), ("infer",))
    runs = {
        (one.record.cell.batch, one.record.cell.resolution, run.level): run
        for one in cells
        if one.comparison
        for run in one.comparison.runs
    }
    _, found, how = values(cells)
    assert [*found] == [name for name, _ in how] == [*OF_THE_RECORD]
    seen = 0
    for measure, of in OF_THE_RECORD.items():
        for level in ("eager", "torchscript", "libtorch", "cudnn"):
            rows = found[measure][f"{level}: {measure} (infer)"]
            for batch, row in zip((8, 32, 128), rows, strict=True):
                for resolution, shown in zip((64, 256), row, strict=True):
                    known = runs.get((batch, resolution, level))
                    wanted = of(known) if known and known.time else None
                    assert shown["order"] == (wanted and pytest.approx(wanted, rel=1e-12))
                    seen += wanted is not None
    assert seen == 5 * 4 * 5  # one of the six cells failed


def test_a_value_is_written_with_its_unit() -> None:
    _, found, _ = values([two_levels(1), two_levels(4)])
    texts = {
        measure: [one["text"] for one in maps[f"cudnn: {measure} (infer)"][0]]
        for measure, maps in found.items()
    }
    assert texts == {
        "time per sample": ["20 ms", "20 ms"],
        "samples per second": ["50 /s", "50 /s"],
        "memory": ["1 GiB", "1 GiB"],
        "GPU utilization": ["90%", "90%"],
        "energy per sample": ["1.5 J", "375 mJ"],
    }


def test_a_cell_without_a_value_shows_why() -> None:
    failures = {
        "oom": ("failed", "out of memory: CUDA out of memory"),
        "fail": ("failed", "it died: signal 11"),
        "diff": ("differs", "output/0 is off"),
        "n/a": ("unavailable", "no cuDNN"),
    }
    cells = []
    for batch, (verdict, reason) in enumerate(failures.values(), 1):
        asked = cell(batch, 32)
        lost = run(asked, "cudnn", None, verdict=verdict, reason=reason)  # type: ignore[arg-type]
        cells.append(measured(asked, [run(asked, "eager", 0.04, 1.0, memory=GIB), lost]))
    cells.append(unmeasured(cell(8, 32), "skipped", "it needs 200 GiB"))
    note, found, _ = values(cells)
    for measure, maps in found.items():
        [row] = maps[f"cudnn: {measure} (infer)"]
        assert [one["text"] for one in row] == [*failures, "skip"]
        assert all(one["order"] is None and "heat" not in one for one in row)
        assert maps[f"eager: {measure} (infer)"][0][0]["order"] is not None
    assert "oom: out of memory; skip: skipped; fail: failed; diff: its numbers differ;" in note
    parts = next(
        one["parts"] for one in study.sections(rows_of("a", cells), "r0") if one.get("parts")
    )
    whole = [str(parts[one["opens"]]) for one in row]
    reasons = [reason for _, reason in failures.values()]
    assert all(why in text for why, text in zip([*reasons, "200 GiB"], whole, strict=True))


def test_only_what_was_recorded_has_a_map() -> None:
    asked = cell(8, 32, device="cpu")
    timed = measured(asked, [run(asked, v, t, t / 0.04) for v, t in SECOND.items()])
    assert [*values([timed])[1]] == ["time per sample", "samples per second"]
    without = two_levels(8, utilization=None)  # nor energy
    assert [*values([without])[1]] == ["time per sample", "samples per second", "memory"]
    nothing = study.sections(rows_of("a", [unmeasured(asked, "failed", "it died")]), "r0")
    assert not [one for one in nothing if one["id"].endswith("-measures")]


def test_a_value_that_only_some_levels_have_is_missing_from_the_others() -> None:
    asked = cell(8, 32)
    runs = [run(asked, "eager", 0.04, 1.0, memory=GIB), run(asked, "cudnn", 0.02, 0.5)]
    note, found, _ = values([measured(asked, runs)])
    assert found["memory"]["cudnn: memory (infer)"][0][0]["text"] == "?"
    assert "?: measured, but without this value; " in note


def test_the_largest_value_of_all_levels_has_the_strongest_colour() -> None:
    _, found, _ = values([two_levels(1), two_levels(8, rounds=1)])
    heats = {
        measure: {
            level: [one["heat"] for one in found[measure][f"{level}: {measure} (infer)"][0]]
            for level in SECOND
        }
        for measure in ("time per sample", "samples per second", "GPU utilization")
    }
    # Of batch 8 a time is from too few rounds; a share is from 0 to 1.
    assert heats == {
        "time per sample": {"eager": [1.0, 0.0], "cudnn": [0.0, 0.0]},
        "samples per second": {"eager": [0.0, 0.0], "cudnn": [1.0, 0.0]},
        "GPU utilization": {"eager": [0.9, 0.9], "cudnn": [0.9, 0.9]},
    }


def test_published_values_stand_beside_a_levels_own() -> None:
    paper = levental2020_grid()
    _, found, _ = values([two_levels(8), two_levels(32)], paper=True)
    shown = found["time per sample"]["cudnn: time per sample, as published: 2020 (V100) (infer)"]
    wanted = {
        one.batch: one.sample_time
        for one in paper.cells
        if (one.mode, one.level, one.resolution) == ("infer", "cudnn", 32)
    }
    assert [[one["order"] for one in row] for row in shown] == [[wanted[8], wanted[32]]]
    assert all("published" not in caption for caption in found["energy per sample"])


# ---------------------------------------------------------------- lines and surfaces


def options(section: str) -> dict[str, Any]:
    blocks = SECTIONS[section]["blocks"]
    beside = [part for one in blocks if one["kind"] == "beside" for part in one["blocks"]]
    return {one["title"]: one for one in [*blocks, *beside] if one["kind"] == "choice"}


def test_lines_can_be_seen_at_every_value_of_the_other_axis() -> None:
    over_batch = options("r0-0-cuts")["time per sample by batch size"]
    assert [one["name"] for one in over_batch["options"]] == [f"resolution {n}" for n in GRID]
    assert over_batch["first"] == 1  # 32, as in the figures
    lines = over_batch["options"][1]["block"]["lines"]
    mine = next(line for line in lines if line["name"] == EVIL)
    assert mine["points"] == [[n, 0.01 * overtaking(n, 32) / n] for n in GRID]


def test_a_surface_has_every_cell() -> None:
    [over_both] = options("r0-0-surfaces").values()
    time = next(one for one in over_both["options"] if one["name"] == "time per sample")
    [surface, *_] = time["block"]["blocks"]
    assert surface["places"] == [list(GRID), list(GRID)]
    values = next(one for one in surface["levels"] if one["name"] == EVIL)["values"]
    found = [[pair[0] for pair in row] for row in values]
    assert found == [[0.01 * overtaking(y, x) / y for x in GRID] for y in GRID]


@pytest.mark.slow
@examples(30, suppress_health_check=[HealthCheck.too_slow])
@given(studies())
def test_any_study_has_a_page(found: list[StudyRow]) -> None:
    if found:
        sections = study.sections(found, "r0", levental2020_grid())
        assert sections[0]["id"] == "r0-answer"
        assert all(one["blocks"] for one in sections)
