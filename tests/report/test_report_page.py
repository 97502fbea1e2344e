"""One page that shows a record: what it says, that nothing in it is executed, and that it is read
back; in a browser, that it works as people use it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.api import Result
from golow.programs.auditing import store as audit_store
from golow.programs.comparison import store
from golow.programs.life import store as life_store
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.records.comparison import Comparison, LayerTime, Run
from golow.records.errors import GolowError
from golow.report.html_report import write_report
from golow.report.page import (
    audit,
    comparison,
    life,
    profile,
    several,
    study,
    training,
)
from golow.report.page import load as load_page
from golow.report.page.blocks import order_of
from golow.report.page.file import unpacked, write_page
from golow.report.published import levental2020_grid
from golow.report.study.rows import load, rows_of
from support.command import golow
from support.examples import examples
from support.pages.browser import Browser
from support.pages.pages import COMPARED, EVIL, RUNS, TAG, in_a_browser, in_page, violations
from support.records import audits, lives, load_tests
from support.records.drawn_studies import levental_like, write
from support.records.drawn_trainings import TWO_SEEDS, paper_like
from support.records.profiles import gpu_profiles


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = store.save(COMPARED, tmp_path_factory.mktemp("records"))
    life_store.save(lives.whole(), folder)
    return folder


@pytest.fixture(scope="module")
def page(record: Path) -> Path:
    return write_report([record], record.parent / "page.html")


# ---------------------------------------------------------------- the file


def test_the_record_is_read_back_as_it_was(page: Path) -> None:
    with unpacked(page) as [folder]:
        assert store.load(folder) == COMPARED
        assert life_store.load(folder) == lives.whole()
    assert not folder.exists()


def test_golow_show_reads_a_page(record: Path, page: Path) -> None:
    assert golow("show", str(page)).output == golow("show", str(record)).output


def test_the_command_writes_the_same_page_again(record: Path, page: Path, tmp_path: Path) -> None:
    ended = golow("report", str(record), "--out", "again.html", folder=tmp_path)
    assert (ended.status, ended.output) == (0, "report: again.html\n")
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_a_page_may_be_given_in_place_of_its_records(
    record: Path, page: Path, tmp_path: Path
) -> None:
    assert write_report([page], tmp_path / "again.html").read_bytes() == page.read_bytes()
    both = write_report([page, record], tmp_path / "both.html")
    third = write_report([both, page], tmp_path / "third.html")
    with unpacked(third) as folders:
        assert [folder.name for folder in folders] == [record.name] * 3
        assert all(store.load(folder) == COMPARED for folder in folders)
    with pytest.raises(GolowError):
        write_report([tmp_path / "none.html"], tmp_path / "never.html")


def test_python_writes_a_page(tmp_path: Path) -> None:
    file = Result(COMPARED).report(tmp_path / "page.html")
    with unpacked(file) as [folder]:
        assert store.load(folder) == COMPARED


def test_nothing_of_a_record_can_end_a_script_or_ask_the_network(page: Path) -> None:
    text = page.read_text()
    assert text.count("<script") == text.count("</script>") == 3
    assert "<img" not in text
    assert not {"\u2028", "\u2029", "\x1b"} & set(text)
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", text)


def test_a_folder_that_is_no_record_is_an_error(tmp_path: Path) -> None:
    ended = golow("report", str(tmp_path), "--out", str(tmp_path / "page.html"))
    assert ended.status == 2
    assert "is not a golow record" in ended.error
    store.save(COMPARED, tmp_path)
    ended = golow("report", str(tmp_path), "--out", str(tmp_path / "page.html"))
    assert ended.status == 2
    assert f"to report one: golow report {tmp_path}/RECORD" in ended.error
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "inside",
    [
        "",
        "[]",
        "{}",
        "{",
        '{"one": {"../out.json": "x"}}',
        '{"one": {"/tmp/out.json": "x"}}',
        '{"one": {"a/./b": "x"}}',
        '{"one": {"a": 1}}',
        '{"0-..": {"a": "x"}}',
        '{"0-a/b": {"a": "x"}}',
        '{"one": {"a": "\\ud800"}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_page_is_an_error(inside: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(f'<script type="application/json" id="golow-record">{inside}</script>')
    with pytest.raises(GolowError), unpacked(file):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@examples(30)
@given(st.text(), st.text())
def test_any_text_in_a_record_is_kept(
    tmp_path_factory: pytest.TempPathFactory, text: str, title: str
) -> None:
    file = tmp_path_factory.mktemp("any") / "page.html"
    write_page(title, [], {"one": {"a.json": text}}, file)
    assert in_page(file, "golow-record") == {"one": {"a.json": text}}
    with unpacked(file) as [folder]:
        assert (folder / "a.json").read_bytes().decode() == text


# ---------------------------------------------------------------- what it says


def test_the_page_has_the_numbers_of_the_record(page: Path) -> None:
    sections = {one["id"]: one["blocks"] for one in in_page(page, "golow-view")["sections"]}
    ladder = sections["r0-ladder"][0]
    assert [row[2]["order"] for row in ladder["rows"]] == [
        run.time.value for run in RUNS if run.time
    ]
    [distribution, over_time] = ladder["details"][2][1]["blocks"]
    assert sum(y for _, y in distribution["lines"][0]["points"]) / 2 == 7  # clean blocks
    chart = over_time["lines"][0]
    assert chart["points"] == [[n + 1, (10_100_000 + n) / 1e6] for n in range(8)]
    assert chart["marked"] == {"3": "disturbed"}
    proof = sections["r0-proof"][1]["rows"]
    assert [row[2]["order"] for row in proof] == sorted(row[2]["order"] for row in proof)[::-1]
    assert proof[0][2]["order"] == pytest.approx(2 / 3)
    assert "Use onednn" in sections["r0-answer"][0]["text"]


def test_texts_are_sorted_by_what_they_mean() -> None:
    texts = ["12 ns", "1.06 us", "704 us", "2 ms", "1.5 s", "3 min"]
    assert sorted(texts, key=lambda text: order_of(text) or 0) == texts
    assert order_of("+2.00 MiB") == 2**21
    assert order_of("96.67%") == pytest.approx(0.9667)
    assert order_of("none") is None


# ---------------------------------------------------------------- in a browser


PAPER = levental_like()  # 128 cells


def thousand_layers() -> Profile:
    """Of two levels, with hostile names."""
    steps = tuple(
        LayerTime(modules=(f"{n}{EVIL}",), phase="forward", operation="x", ns=(1000 * n + 1,))
        for n in range(1000)
    )
    levels = tuple(
        LevelProfile(level=name, verdict="match", layers=steps) for name in ("eager", EVIL)
    )
    return Profile(workload=audits.workload(model=EVIL), levels=levels)


# Sections of every kind.
KINDS: dict[str, Callable[[], list[Any]]] = {
    "comparison": lambda: comparison.sections(COMPARED, "r0"),
    "life": lambda: life.sections(lives.whole(), "r0"),
    "audit": lambda: audit.sections(audits.EVERYTHING, "r0"),
    "hostile audit": lambda: audit.sections(audits.HOSTILE, "r0"),
    "load": lambda: load_page.sections(load_tests.everything(), "r0"),
    "training": lambda: training.sections(paper_like(initialisations=("default", "xavier")), "r0"),
    "two seeds": lambda: training.sections(TWO_SEEDS, "r0"),
    "several": lambda: several.sections([COMPARED, COMPARED, elsewhere(), another_workload()]),
    "1,000 layers": lambda: profile.sections((thousand_layers(),), "r0"),
    "profile of a GPU": lambda: profile.sections(gpu_profiles(), "r0"),
    "study": lambda: study.sections(rows_of(EVIL, PAPER), "r0", levental2020_grid()),
}


def elsewhere() -> Comparison:
    """The same workload on another machine, half as fast again."""
    machine = msgspec.structs.replace(RUNS[0].environment, cpu_model=EVIL)
    runs = [msgspec.structs.replace(slowed(run), environment=machine) for run in COMPARED.runs]
    return msgspec.structs.replace(COMPARED, id="elsewhere", runs=tuple(runs))


def another_workload() -> Comparison:
    workload = msgspec.structs.replace(COMPARED.workload, batch=99)
    return msgspec.structs.replace(COMPARED, id="other", workload=workload)


def slowed(run: Run) -> Run:
    """The same run, half as fast again."""
    blocks = tuple(
        msgspec.structs.replace(block, host_ns=tuple(int(1.5 * ns) for ns in block.host_ns))
        for block in run.blocks
    )
    time = run.time and msgspec.structs.replace(run.time, value=1.5 * run.time.value)
    return msgspec.structs.replace(run, blocks=blocks, time=time)


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("kind", KINDS)
def test_every_view_opens_at_once_without_a_word_and_is_accessible(
    kind: str, window: Browser, tmp_path: Path
) -> None:
    sections = KINDS[kind]()
    seconds = window.open(write_page(EVIL, sections, {"one": {"a": EVIL}}, tmp_path / "p.html"))
    assert seconds < 2
    assert window.log() == []
    assert not window.run("return window.hacked || document.images.length")
    ids = window.run("return [...document.querySelectorAll('section')].map(one => one.id)")
    assert ids == [one["id"] for one in sections]
    for dark in ("light", "dark"):
        window.tell(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": dark}]
        )
        assert violations(window) == []
    window.tell("Emulation.setEmulatedMedia", features=[])


@pytest.mark.slow
@in_a_browser
def test_a_click_sorts_a_word_filters_and_a_level_opens(window: Browser, page: Path) -> None:
    window.open(page)
    names = (
        "return [...document.querySelectorAll('#r0-ladder tbody .opener')].map(o => o.textContent)"
    )
    assert window.run(names) == ["eager", TAG, "onednn"]
    window.run("document.querySelectorAll('#r0-ladder thead button')[2].click()")
    assert window.run(names) == ["onednn", TAG, "eager"]
    window.run("document.querySelectorAll('#r0-ladder thead button')[2].click()")
    assert window.run(names) == ["eager", TAG, "onednn"]
    window.run("document.querySelector('#r0-ladder .opener').click()")
    assert "0, 1" in window.run("return document.querySelector('.details').textContent")
    assert window.run("return document.querySelectorAll('.details circle').length") == 8
    assert window.log() == []


@pytest.mark.slow
@in_a_browser
def test_a_filter_leaves_the_rows_with_all_words(window: Browser, tmp_path: Path) -> None:
    window.open(write_page("layers", KINDS["1,000 layers"](), {}, tmp_path / "page.html"))
    rows = "return document.querySelectorAll('tbody tr').length"
    assert window.run(rows) == 200  # until all are asked for
    window.run("document.querySelector('.filter button').click()")
    assert window.run(rows) > 200
    window.run(
        "const box = document.querySelector('input[type=search]'); box.value = '777 forward';"
        "box.dispatchEvent(new Event('input'))"
    )
    assert window.run(rows) == 3  # its name has two points: the layer, and the two that it is in


@in_a_browser
def test_the_slider_moves_the_recommendation(window: Browser, page: Path) -> None:
    from golow.programs.life.curve import fastest
    from golow.programs.life.stages import curves
    from golow.report.life.remarks import caches

    known = curves(lives.whole(), caches(lives.whole())[0])
    window.open(page)
    for power in (0, 3, 7):
        said = window.run(
            "const one = document.querySelector('input[type=range]'); one.value = arguments[0];"
            "one.dispatchEvent(new Event('input'));"
            "return document.querySelector('figure .lead').textContent",
            power,
        )
        assert f"use {fastest(known, 10**power)}:" in said


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_needs_no_scrolling_to_the_side_and_paper_is_a_pdf(
    kind: str, window: Browser, tmp_path: Path
) -> None:
    page = write_page(EVIL, KINDS[kind](), {}, tmp_path / "page.html")
    window.tell(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    window.open(page)
    assert window.run("return document.documentElement.scrollWidth") <= 360
    window.tell("Emulation.clearDeviceMetricsOverride")
    assert window.printed().startswith(b"%PDF")


def test_an_audit_is_read_back(tmp_path: Path) -> None:
    folder = audit_store.save(audits.EVERYTHING, tmp_path)
    with unpacked(write_report([folder], tmp_path / "page.html")) as [inside]:
        assert audit_store.load(inside) == audits.EVERYTHING


def test_a_life_has_what_it_holds_and_spends() -> None:
    [section] = life.sections(lives.whole(), "r0")
    titles = {
        column["title"]
        for block in section["blocks"]
        if block["kind"] == "table"
        for column in block["columns"]
    }
    assert {"energy", "disk", "host peak", "first result"} <= titles


def test_several_comparisons_are_held_against_the_first() -> None:
    slower = msgspec.structs.replace(COMPARED, id="later", runs=tuple(map(slowed, COMPARED.runs)))
    [section] = several.sections([COMPARED, slower])
    [table] = section["blocks"]
    eager = next(row for row in table["rows"] if row[0]["text"] == "eager")
    assert eager[2]["text"].startswith("+50.0% ")
    assert eager[2]["order"] == pytest.approx(1.5)
    [section] = several.sections([COMPARED, another_workload()])
    assert "batch: " in section["blocks"][0]["text"]
    assert several.sections([COMPARED]) == []


def test_another_machine_is_held_against_its_own_eager() -> None:
    [section] = several.sections([COMPARED, COMPARED, elsewhere()])
    why, here, there = section["blocks"]
    assert "not comparable" in why["text"]
    assert [one["title"] for one in here["columns"]] == ["level", "one", "one"]
    assert [one["title"] for one in there["columns"]][2] == f"elsewhere\n{EVIL}"
    onednn = next(row for row in there["rows"] if row[0]["text"] == "onednn")
    assert onednn[1]["text"] == onednn[2]["text"]
    assert onednn[1]["order"] == pytest.approx(0.0101 / 0.04)
    assert onednn[1]["text"].endswith("\nmatch")


def test_each_record_is_read_once(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_so_far: list[Path] = []

    def counting(place: Path) -> Comparison:
        read_so_far.append(place)
        return load(place)

    load = store.load
    monkeypatch.setattr(store, "load", counting)
    write_report([record, record], tmp_path / "page.html")
    assert read_so_far == [record, record]


def test_a_study_is_read_back(tmp_path: Path) -> None:
    folder = write(tmp_path / "a-study", PAPER[:9])
    page = write_report([folder], tmp_path / "page.html")
    with unpacked(page) as [inside]:
        found = [msgspec.structs.replace(row, study="a-study") for row in load(inside)]
        assert found == load(folder)
    assert "time relative to eager" in golow("show", str(page)).output
