"""What an audit is shown and written as: tables, lines to paste, CSV, figure and record."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from golow.api import AuditResult
from golow.measure.words import CLAIM_MARGIN, SAME_MARGIN
from golow.programs.auditing.audit_record import Audit, Untried
from golow.programs.auditing.observer import Pace
from golow.report.audit import facts
from golow.report.audit.export import Row, rows
from golow.report.audit.figure import effects, write_figures
from golow.report.audit.progress import AuditProgressDisplay
from golow.report.audit.table import NOT_CONFIRMED, render
from golow.report.console import PlainConsole
from golow.report.units import bytes_change_text, ratio_text
from golow.storage.spreadsheet import FORMULA
from support.pages.figure_checks import defects, said
from support.places import DOCS
from support.records.audits import (
    AUDITS,
    EVERYTHING,
    HOSTILE,
    audit,
    combination,
    level,
    price,
    ratio,
)

PAGE = DOCS / "use" / "audit.md"


def printed(shown: Audit, width: int = 100) -> str:
    text = io.StringIO()
    render(shown, PlainConsole(file=text, width=width, markup=False))
    return text.getvalue()


def words(shown: Audit) -> str:
    """What is printed, in one line."""
    return " ".join(printed(shown).split())


# ---------------------------------------------------------------- the tables


@pytest.mark.parametrize("name", AUDITS)
def test_the_tables_fit(name: str) -> None:
    text = printed(AUDITS[name])
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [64, 72, 80, 100])
def test_names_stay_whole_in_narrow_tables(width: int) -> None:
    one = price(choice="openmp_waiting", alternative="wait_passive_and_then_sleep")
    lines = printed(audit([level(prices=[one])]), width).splitlines()
    assert any(line.lstrip().startswith("openmp_waiting ") for line in lines)
    assert any(line.lstrip().startswith("+wait_passive_and_then_sleep ") for line in lines)


def test_each_word_is_said_with_its_meaning() -> None:
    text = printed(EVERYTHING)
    for word, meaning in facts.WORDS.items():
        assert f"\n{word}: {meaning}\n" in text
    only_same = printed(audit([level(prices=[price(finding="same")])]))
    assert "\nsame: " in only_same and "\nfaster: " not in only_same


def test_the_meanings_name_the_margins_of_the_statistics() -> None:
    assert f"more than {CLAIM_MARGIN:.0%}" in facts.WORDS["faster"]
    assert f"within {SAME_MARGIN:.0%}" in facts.WORDS["same"]


def test_a_table_is_sorted_by_effect_and_quotes_the_second_race() -> None:
    names = [one.alternative for one in facts.ordered(EVERYTHING.levels[0])]
    assert names == ["fused_sgd", "one_thread", "malloc_keep", "bound", "channels_last"]
    shown = audit([level(prices=[price(value=0.8)])])
    assert shown.levels[0].prices[0].run.ratio == ratio(0.784, "faster")
    assert "0.800" in printed(shown) and "0.784" not in printed(shown)


def test_choices_that_differ_come_first_with_the_levels_of_each_value() -> None:
    text = printed(EVERYTHING)
    table = text[text.index("differ between") : text.index("\neager:")]
    assert "returns memory  eager" in table and "keeps memory    libtorch" in table
    assert "governor" not in table
    assert "In effect everywhere, not changed: governor (performance)." in text
    assert "differ between" not in printed(audit([level("eager"), level("libtorch")]))


def test_what_matters_nowhere_is_one_line_of_names() -> None:
    same = price("a", "a1", 1.0, "same"), price("b", "b1", 1.0, "same")
    other = price("b", "b2", 1.2, "slower"), price("c", "c1", 1.0, "unclear")
    shown = audit([level("eager", [*same, *other]), level("libtorch", same)])
    assert facts.without_effect(shown) == ["a"]
    assert "Make no difference at any of these levels: a." in printed(shown)


def test_what_was_not_tried_has_its_reason_once() -> None:
    left = [Untried(choice="c", alternative=name, reason="not likely") for name in ("x", "y")]
    shown = audit([level("eager", untried=left), level("libtorch", untried=left[:1])])
    assert "Not tried: x, y (at eager): not likely" in printed(shown)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("differs", "many: differs: it changes results beyond the limit: a reason"),
        ("failed", "many: failed: a reason"),
        ("unavailable", "many: unavailable: a reason"),
    ],
)
def test_an_alternative_without_a_time_says_why(verdict: Any, said: str) -> None:
    bad = price("threads", "many", None, verdict=verdict, reason="a reason")
    assert said in words(audit([level(prices=[price(), bad])]))


def test_too_few_rounds_are_no_finding() -> None:
    text = words(audit([level(prices=[price(value=None)])]))
    assert "too few rounds for malloc_keep: allow more seconds per race" in text
    assert "unclear" not in text


def test_an_interrupted_audit_says_so_and_marks_what_only_one_race_says() -> None:
    text = printed(AUDITS["interrupted"])
    assert "interrupted: partial results" in text
    assert "faster*" in text and NOT_CONFIRMED in text
    assert "faster*" not in printed(EVERYTHING)


def test_a_level_that_failed_says_why() -> None:
    assert "compile: failed: it died" in printed(AUDITS["a failed level"])


# ---------------------------------------------------------------- how to set it


def test_a_level_is_called_by_a_line_unless_a_setting_belongs_around_it() -> None:
    freezing = price("inductor_mode", "freezing", level="compile")
    named = msgspec.structs.replace(freezing.run, level="compile:freezing")
    kept, recorded = price(), price("gradient_mode", "recorded", level="torchscript")
    text = printed(
        audit(
            [
                level("compile", [msgspec.structs.replace(freezing, run=named)]),
                level("libtorch", [kept]),
                level("torchscript", [recorded]),
            ]
        )
    )
    lines = [" ".join(one.split()) for one in text.splitlines() if "golow.compile(" in one]
    assert lines == [
        f'call f = golow.compile(model, x, level="{name}", threads=4000)'
        for name in ("compile:freezing", "libtorch")
    ]


def test_lines_to_paste_are_those_of_the_level() -> None:
    def lines(name: str) -> str:
        return words(audit([level(name, [price(level=name)])]))

    shell = "shell MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824"
    assert shell in lines("eager") and shell in lines("libtorch")
    assert "C++ mallopt(M_TRIM_THRESHOLD, 1 << 30)" in lines("libtorch")
    assert "mallopt" not in lines("eager")
    fused = audit([level("eager", [price("optimizer_kernels", "fused_sgd", level="eager")])])
    assert "Python torch.optim.SGD(model.parameters(), ..., fused=True)" in words(fused)


def test_the_command_compares_the_level_with_the_alternative() -> None:
    text = words(audit([level("eager", [price(level="eager")])])).replace("\\ ", "")
    assert (
        "golow compare resnet50 --input 3x64x64 --batch 8 --threads 4000 "
        "--levels eager,eager+malloc_keep"
    ) in text


def test_only_what_is_faster_and_right_is_to_be_set() -> None:
    for finding in ("slower", "same", "refuted", "unclear"):
        text = printed(audit([level(prices=[price(finding=finding)])]))  # type: ignore[arg-type]
        assert "How to set" not in text
    wrong = price(verdict="differs", reason="0/output/0")
    assert "How to set" not in printed(audit([level(prices=[wrong])]))


def test_what_it_costs_elsewhere_is_said_where_it_is_notable() -> None:
    costly = words(audit([level(prices=[price(resident=900 * 2**20, ready=7.0)])]))
    assert "It holds 400 MiB more (default: 500 MiB)." in costly
    assert "It is ready 2.00 s later (default: 5.00 s)." in costly
    assert "It may cost memory: memory freed by an iteration stays in the process." in costly
    cheap = words(audit([level(prices=[price(resident=510 * 2**20, ready=5.1)])]))
    assert "It holds" not in cheap and "later" not in cheap


def test_the_best_combination_has_its_race_and_its_lines() -> None:
    shown = audit([level(prices=[price()], best=combination())])
    text = words(shown).replace("\\ ", "")
    assert "malloc_keep + fused_sgd: 0.700 of the time, saves 12.0 ms of 40.0 ms" in text
    assert "(0.693-0.707, faster), raced from the beginning" in text
    assert "--levels libtorch,libtorch+fused_sgd+malloc_keep" in text
    unconfirmed = words(AUDITS["a combination that was not confirmed"])
    assert "1.200 of the time (1.188-1.212, unclear)" in unconfirmed


def test_an_alternative_of_another_golow_has_no_lines() -> None:
    text = words(audit([level("eager", [price("of_the_future", "something", level="eager")])]))
    assert "something (of_the_future): 0.800 of the time" in text
    assert "shell" not in text


# ---------------------------------------------------------------- rows


def test_rows_have_the_quoted_ratio_and_how_often_it_was_raced() -> None:
    found = {(row["level"], row["choice"], row["alternative"]): row for row in rows(EVERYTHING)}
    keep = found["libtorch", "allocator", "malloc_keep"]
    assert (keep["ratio"], keep["first_ratio"], keep["races"]) == (0.8, 0.98 * 0.8, 2)
    assert keep["resident_difference"] == 400 * 2**20 and keep["ready_difference"] == 2.0
    assert keep["made_by"] == "glibc" and keep["finding"] == "faster"
    killed = found["libtorch", "threads", "many"]
    assert (killed["finding"], killed["verdict"]) == ("not timed", "failed")
    assert killed["reason"] == "the worker was killed" and killed["ratio"] is None
    assert found["libtorch", "allocator", "mimalloc"]["finding"] == "not tried"
    best = found["libtorch", "best combination", "malloc_keep + fused_sgd"]
    assert best["ratio"] == 0.7


def test_the_table_on_disk_has_no_formula(tmp_path: Path) -> None:
    folder = AuditResult(HOSTILE).save(tmp_path)
    found = list(csv.DictReader((folder / "choices.csv").open(newline="")))
    assert len(found) == 4
    assert not [c for row in found for c in row.values() if c.startswith(FORMULA)]


@pytest.mark.parametrize("name", AUDITS)
def test_every_audit_is_a_table_and_a_data_frame(name: str) -> None:
    result = AuditResult(AUDITS[name])
    assert len(result.to_pandas()) == len(rows(AUDITS[name]))


def test_the_page_lists_the_columns() -> None:
    text = PAGE.read_text()
    assert [name for name in Row.__struct_fields__ if f"`{name}`" not in text] == []
    assert [word for word in facts.WORDS if f"| {word} |" not in text] == []


# ---------------------------------------------------------------- the figure


@pytest.mark.parametrize("name", AUDITS)
def test_a_figure_has_no_defects(name: str) -> None:
    assert defects(effects(AUDITS[name])) == []


@pytest.mark.slow
def test_the_figure_says_what_it_shows_and_what_it_leaves_out() -> None:
    assert "resnet50, inference, batch 8 of 3x64x64, cpu" in said(effects(EVERYTHING))
    assert "eager: 36 others are left out: the table has them." in said(effects(AUDITS["many"]))
    assert "The audit was interrupted." in said(effects(AUDITS["interrupted"]))
    assert "compile: no alternative was timed." in said(effects(AUDITS["a failed level"]))


def test_only_what_two_races_say_is_filled() -> None:
    panel = effects(EVERYTHING).axes[0]
    filled = [
        line.get_markerfacecolor() != "white" for line in panel.lines if line.get_marker() == "o"
    ]
    assert filled == [True, False, False, False, True]


def test_the_figure_keeps_what_is_certain() -> None:
    """It is the smallest of many effects."""
    many = [price(f"c{n}", f"a{n}", 0.5, "unclear") for n in range(40)]
    shown = audit([level(prices=[*many, price(value=0.97)])])
    [panel] = effects(shown).axes
    names = [label.get_text() for label in panel.get_yticklabels()]
    assert "allocator: malloc_keep" in names and len(names) == 24


@pytest.mark.slow
def test_equal_audits_give_equal_files(tmp_path: Path) -> None:
    [first] = write_figures(EVERYTHING, tmp_path / "a")
    [second] = write_figures(EVERYTHING, tmp_path / "b")
    assert first.name == "effects.svg" and first.read_bytes() == second.read_bytes()


# ---------------------------------------------------------------- progress


def test_the_time_that_is_left_is_said_between_races() -> None:
    text = io.StringIO()
    display = AuditProgressDisplay(Console(file=text, width=100))
    display.stage("eager (1 of 2): 3 alternatives")
    display.left(61.0)
    display.left(610.0)
    display.left(0.0)
    assert text.getvalue().splitlines()[1:] == [
        "about 61.0 s left",
        "about 10.0 min left",
        "about 1.00 s left",
    ]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0, 60))
def test_a_pace_ends_at_nothing(races: list[int], seconds: float) -> None:
    pace = Pace(sum(races[:1]), seconds)
    for more in races[1:]:
        pace.more(more)
    assert pace.left() > 0
    before = pace.left()
    pace.more(1)
    assert pace.left() >= before
    pace.more(-1)
    for entrants in races:
        pace.raced(entrants)
    assert pace.left() == 0


@given(st.floats(1e-12, 1e12), st.integers(-(2**50), 2**50))
def test_ratios_and_changes_are_short(number: float, size: int) -> None:
    assert len(ratio_text(number)) <= 8
    assert len(bytes_change_text(size)) <= 12
    assert (bytes_change_text(size)[0] == "+") == (size > 0)
