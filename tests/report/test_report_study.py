"""A study in the page: its maps, crossover, cuts and surfaces have the numbers of the rows, a cell
opens to its comparison, and an exported study is read back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from golow.records.errors import GolowError
from golow.report.html_report import write_report
from golow.report.page import study
from golow.report.page.file import unpacked, write_page
from golow.report.published import levental2020_grid
from golow.report.study.crossover import crossings
from golow.report.study.export import columns, export, read_csv
from golow.report.study.planes import planes
from golow.report.study.rows import Measured, StudyRow, load, rows_of
from golow.storage.spreadsheet import from_cell, to_csv
from support.command import golow
from support.examples import examples
from support.pages.browser import Browser
from support.pages.pages import EVIL, in_a_browser, violations
from support.records.drawn_studies import (
    GIB,
    cell,
    levental_like,
    measured,
    run,
    studies,
    unmeasured,
    write,
)

GRID = (8, 32, 128)


def overtaking(batch: int, resolution: int) -> float:
    """A ratio to eager that passes 1 at a batch of 64 wherever the resolution is 32 or more."""
    return 0.5 if resolution < 32 else batch / 64


def rows() -> list[StudyRow]:
    cells = []
    for batch in GRID:
        for resolution in GRID:
            asked = cell(batch, resolution, ("eager", EVIL))
            ratio = overtaking(batch, resolution)
            levels = [run(asked, "eager", 0.01, 1.0), run(asked, EVIL, 0.01 * ratio, ratio)]
            cells.append(measured(asked, levels))
    return rows_of(EVIL, cells)


ROWS = rows()
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
    return {one["title"]: one for one in SECTIONS[section]["blocks"] if one["kind"] == "choice"}


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


# ---------------------------------------------------------------- read back


@pytest.mark.slow
def test_an_exported_study_is_reported_and_read_back(tmp_path: Path) -> None:
    folder = write(tmp_path / "a-study", levental_like((8, 64), (8, 32)))
    file = export(folder, "csv", tmp_path / "a.csv")
    ended = golow("report", str(file), "--out", "page.html", folder=tmp_path)
    assert (ended.status, ended.output) == (0, "report: page.html\n")
    with unpacked(tmp_path / "page.html") as [inside]:
        assert read_csv(inside / "a.csv") == load(folder)
    shown = golow("show", str(tmp_path / "page.html"))
    assert shown.output == golow("show", str(file)).output == golow("show", str(folder)).output
    whole = write_report([folder], tmp_path / "whole.html").read_text()
    assert (tmp_path / "page.html").read_text().count("opens") == whole.count("opens")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column 'study'"),
        ("mode,batch\ninfer,8\n", "no column 'study'"),
        (",".join(columns()) + "\n" + "x," * 60 + "\n", "line 2"),
    ],
)
def test_another_table_is_an_error(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(text)
    for command in (("report", "--out", str(tmp_path / "page.html")), ("show",)):
        ended = golow(command[0], str(file), *command[1:])
        assert ended.status == 2
        assert said in ended.error
        assert "golow study export" in ended.error
    assert not (tmp_path / "page.html").exists()


def test_a_page_with_another_table_says_what_it_cannot_read(tmp_path: Path) -> None:
    page = write_page("x", [], {"0-a": {"a.csv": "mode,batch\ninfer,8\n"}}, tmp_path / "page.html")
    ended = golow("show", str(page))
    assert ended.status == 2
    assert "is no exported study" in ended.error


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(studies())
def test_rows_survive_their_csv(
    tmp_path_factory: pytest.TempPathFactory, found: list[StudyRow]
) -> None:
    file = tmp_path_factory.mktemp("csv") / "rows.csv"
    text = to_csv([msgspec.structs.asdict(row) for row in found], list(columns()))
    file.write_text(text, encoding="utf-8", newline="")
    assert read_csv(file) == found


@given(st.text())
def test_a_cell_is_the_text_that_it_was(text: str) -> None:
    shown = to_csv([{"a": text}]).partition("\n")[2]
    if not {*text} & set(',"\r\n'):
        assert from_cell(shown.removesuffix("\r\n").removesuffix("\n").strip('"')) == text


def test_no_such_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GolowError, match="there is no file or folder"):
        write_report([tmp_path / "nothing"], tmp_path / "page.html")


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sections = study.sections(ROWS, "r0", levental2020_grid())
    return write_page(EVIL, sections, {}, tmp_path_factory.mktemp("study") / "page.html")


@pytest.mark.slow
@in_a_browser
def test_a_click_on_a_cell_opens_its_comparison(window: Browser, page: Path) -> None:
    window.open(page)
    opened = "return [...document.querySelectorAll('.details')].map(one => one.textContent)"
    for section in ("#r0-0-fastest", "#r0-0-ratio"):
        window.run(f"document.querySelectorAll('{section} .cell')[7].click()")
        [text] = window.run(opened)
        assert "batch 128, resolution 32 (infer): eager is fastest here." in text
        assert window.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
        assert violations(window) == []
        window.run("document.activeElement.click()")
        assert window.run(opened) == []
    assert not window.run("return window.hacked || document.images.length")
    assert window.log() == []


@pytest.mark.slow
@in_a_browser
def test_a_surface_turns_by_dragging_and_by_the_arrow_keys(window: Browser, page: Path) -> None:
    window.open(page)
    shape = "return document.querySelector('.scene path[fill-opacity]').getAttribute('d')"
    seen = [window.run(shape)]
    window.run("document.querySelector('.scene').focus()")
    for key in ("ArrowLeft", "ArrowUp"):
        window.press(key)
        seen.append(window.run(shape))
    window.point(".scene")
    x, y = window.run(
        "const at = document.querySelector('.scene').getBoundingClientRect();"
        "return [at.x + at.width / 2, at.y + at.height / 2]"
    )
    held = {"button": "left", "buttons": 1}
    window.tell("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, clickCount=1, **held)
    window.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x + 60, y=y, **held)
    window.tell("Input.dispatchMouseEvent", type="mouseReleased", x=x + 60, y=y, button="left")
    seen.append(window.run(shape))
    assert len(set(seen)) == 4
    assert violations(window) == []
    assert window.log() == []


@in_a_browser
def test_a_choice_shows_another_cut(window: Browser, page: Path) -> None:
    window.open(page)
    title = "return document.querySelector('#r0-0-cuts .choice figcaption').textContent"
    before = window.run(title)
    window.run(
        "const one = document.querySelector('#r0-0-cuts select'); one.value = 2;"
        "one.dispatchEvent(new Event('change'))"
    )
    assert (before, window.run(title)) == (
        "time per sample by resolution, batch 32",
        "time per sample by resolution, batch 128",
    )


@pytest.mark.slow
@in_a_browser
def test_a_reader_chooses_a_measure_and_opens_a_cell(window: Browser, page: Path) -> None:
    window.open(page)
    captions = (
        "return [...document.querySelectorAll('#r0-0-measures .map caption')]"
        ".map(one => one.textContent)"
    )
    assert window.run(captions)[0] == "eager: time per sample (infer)"
    window.run(
        "const one = document.querySelector('#r0-0-measures select');"
        "one.value = [...one.options].find(o => o.text === 'energy per sample').value;"
        "one.dispatchEvent(new Event('change'))"
    )
    assert window.run(captions) == [
        f"{level}: energy per sample (infer)" for level in ("eager", EVIL)
    ]
    window.run("document.querySelectorAll('#r0-0-measures .cell')[7].click()")
    opened = "return document.querySelector('#r0-0-measures .details').textContent"
    assert "batch 128, resolution 32 (infer): eager is fastest here." in window.run(opened)
    for dark in ("light", "dark"):
        window.tell(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": dark}]
        )
        assert violations(window) == []
    window.tell("Emulation.setEmulatedMedia", features=[])
    assert not window.run("return window.hacked || document.images.length")
    assert window.log() == []
