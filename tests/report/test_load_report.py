"""Tables, figures, rows and files of a load test."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest

from golow.programs.load import store
from golow.programs.load.load_record import LevelLoad, LoadTest
from golow.records.comparison import Check
from golow.records.errors import GolowError
from golow.report.console import PlainConsole
from golow.report.findings import of_load
from golow.report.load.curves import batch_sizes, busiest, distribution, points, queue
from golow.report.load.export import rows as exported
from golow.report.load.export import write_tables
from golow.report.load.facts import rows
from golow.report.load.figure import busy_figure, rate_figure, write_figures
from golow.report.load.table import render
from golow.report.page.load import sections
from support.pages.figure_checks import defects, said
from support.records.load_tests import RATES, everything, level, load_test, run, texts


def printed(found: LoadTest) -> str:
    text = io.StringIO()
    render(found, PlainConsole(file=text, width=100, markup=False))
    return text.getvalue()


def test_the_table_shows_scenarios_rates_failures_and_what_is_unclear() -> None:
    text = printed(everything())
    for words in (
        "p99 within 20.0 ms",
        "Single stream",
        "Offline",
        "Server",
        "at 200/s, against eager: onednn p50 faster, p90 faster, p99 faster",
        "The highest rate at which p99 is within 20.0 ms",
        "higher",
        "held",
        "unclear",
        "compile: differs: 2 of 32 answers are missing",
        "openvino: failed in server at 200 requests/s: died: it was ended by SIGKILL",
        "torchscript: no rate: unclear: too few requests",
        "LoadGen shared the levels' cores",
        "p99.9 6,636",
        "4 copies of the weights",
        "no energy: RAPL cannot be read",
        "note: the model changes input 0 in place",
    ):
        assert words in text, words
    assert max(map(len, text.splitlines())) <= 100


def test_the_list_of_a_folder_states_the_highest_rate() -> None:
    """Of a search with its limits, which texts have two of; else the answers of a scenario."""
    assert of_load(texts()).endswith("requests/s, TTFT p99 within 20.0 ms, TPOT p99 within 1.00 ms")
    assert of_load(everything()).endswith("requests/s, p99 within 20.0 ms")
    plain = [msgspec.structs.replace(one, peak=None) for one in everything().levels]
    without = msgspec.structs.replace(everything(), levels=tuple(plain))
    assert of_load(without).endswith("answers/s, offline")
    plan = msgspec.structs.replace(without.plan, scenarios=("server",))
    assert of_load(msgspec.structs.replace(without, plan=plan)).endswith("answers/s, server")


def test_texts_are_sections_of_a_page() -> None:
    (found,) = sections(texts(), "x")
    shown = str(found)
    for words in ("TTFT p99", "TPOT p50", "9 tokens after 16 to 64"):
        assert words in shown, words


def test_texts_have_the_times_of_their_tokens() -> None:
    text = printed(texts())
    for words in (
        "9 tokens after 16 to 64, float32",
        "TTFT p99 within 20.0 ms, TPOT p99 within 1.00 ms",
        "against eager: onednn TTFT p50 faster",
        "TPOT p99 faster",
        "overload",
    ):
        assert words in " ".join(text.split()), words
    assert max(map(len, text.splitlines())) <= 100
    (eager, *_) = rows(texts(), "server")
    assert eager.tokens_per_second == pytest.approx(9 * 50.0)
    median = eager.spreads["tpot"].percentiles[0.5]
    assert median is not None
    assert median.value == pytest.approx(0.004 / 8, rel=0.1)
    first = exported(texts())[0]
    assert first["p50"] is None
    assert first["ttft_p50"] == pytest.approx(0.004, rel=0.1)
    assert first["tpot_p50"] == pytest.approx(0.0005, rel=0.1)


def test_an_interrupted_test_says_so_and_one_of_nothing_is_shown() -> None:
    assert "interrupted: partial results" in printed(load_test(level("eager"), interrupted=True))
    assert "under load" in printed(load_test())


def test_one_round_tells_no_levels_apart() -> None:
    found = everything()
    once = [
        msgspec.structs.replace(one, runs=tuple(run for run in one.runs if run.round == 1))
        for one in found.levels
    ]
    plan = msgspec.structs.replace(found.plan, repeats=1)
    text = printed(msgspec.structs.replace(found, plan=plan, levels=tuple(once)))
    assert "against eager" not in text
    assert "one round: levels are not told apart; use --repeats 3 or more" in text
    assert "one round" not in printed(found)


def test_a_late_generator_is_named() -> None:
    assert "issued requests late" not in printed(load_test(level("eager")))
    one = level("eager")
    late = [msgspec.structs.replace(run, late=0.004) for run in one.runs]
    text = printed(load_test(msgspec.structs.replace(one, runs=tuple(late))))
    assert "share of the median latency: eager 80%" in " ".join(text.split())


def test_runs_of_one_rate_are_one_row_with_all_their_requests() -> None:
    found = list(rows(everything(), "server"))
    assert [(row.rate, row.level) for row in found] == [
        (50.0, "eager"),
        (50.0, "onednn"),
        (50.0, "torchscript"),
        (200.0, "eager"),
        (200.0, "onednn"),
        (200.0, "openvino"),
    ]
    eager, onednn = found[0], found[1]
    assert eager.requests == 1600
    spreads = [row.spreads["latency"] for row in (eager, onednn)]
    assert [one.apart[0.5] for one in spreads] == ["same", "faster"]
    median = spreads[0].percentiles[0.5]
    assert median is not None
    assert 0.0072 < median.value < 0.0088
    assert found[-1].outcome == "failed"
    assert found[-1].spreads["latency"].percentiles[0.5] is None


def test_exported_rows_have_only_percentiles_that_may_be_quoted(tmp_path: Path) -> None:
    write_tables(everything(), tmp_path)
    with (tmp_path / "load.csv").open() as file:
        listed = list(csv.DictReader(file))
    assert len(listed) == len(exported(everything()))
    server = [row for row in listed if row["scenario"] == "server" and row["level"] == "eager"]
    assert [float(row["rate"]) for row in server] == list(RATES)
    assert all(row["p99"] and not row["p999"] for row in server)
    searched = {row["level"]: row["highest_rate"] for row in listed if row["scenario"] == "search"}
    assert searched == {"eager": "200.0", "onednn": "400.0"}
    assert [row["verdict"] for row in listed if row["level"] == "compile"] == ["differs"]


# ---------------------------------------------------------------- figures


def test_a_curve_has_the_rates_at_which_the_percentile_may_be_quoted() -> None:
    assert [one.rate for one in points(level("eager"), 0.99)] == list(RATES)
    assert points(level("eager"), 0.999) == []


def test_nearly_equal_rates_of_a_search_are_one_point() -> None:
    rates = (100.0, 104.0, 109.0, 111.0, 140.0)
    runs = tuple(run(rate=rate) for rate in rates)
    searched = LevelLoad(level="eager", check=Check(verdict="match"), runs=runs)
    assert [one.rate for one in points(searched, 0.5)] == list(rates)
    assert [one.rate for one in points(searched, 0.5, within=1.1)] == [104.0, 111.0, 140.0]


def test_a_distribution_falls_from_all_to_one() -> None:
    found = distribution([run(rate=50.0)])
    assert found[0][1] == 1.0
    assert found[-1][1] == pytest.approx(1 / 800)
    assert found == sorted(found, key=lambda one: (one[0], -one[1]))
    assert distribution([]) == []


def test_batches_and_queue_are_those_of_the_highest_rate() -> None:
    runs = busiest(level("eager"))
    assert {one.rate for one in runs} == {200.0}
    assert batch_sizes(runs) == pytest.approx({1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25}, abs=0.01)
    moments = queue(runs[0])
    assert len(moments) == 100
    assert max(left for _, left in moments) == 2
    assert queue(run(count=0)) == []
    assert busiest(load_test(level("eager")).levels[0]) == runs


@pytest.mark.slow
def test_the_figures_have_no_defects(tmp_path: Path) -> None:
    assert defects(rate_figure(texts())) == []
    for figure in (rate_figure(everything()), busy_figure(everything())):
        assert defects(figure) == []
        assert "lenet5" in said(figure)
    files = write_figures(everything(), tmp_path, ("svg", "png"))
    assert [file.name for file in files] == [
        "load-rate.svg",
        "load-rate.png",
        "load-busy.svg",
        "load-busy.png",
    ]
    assert write_figures(load_test(), tmp_path) == []


# ---------------------------------------------------------------- files


def test_a_record_is_saved_and_read_again(tmp_path: Path) -> None:
    folder = store.save(everything(), tmp_path)
    assert store.load(folder) == store.load(folder / "load.json") == everything()
    assert store.save(everything(), tmp_path) == folder
    other = store.save(msgspec.structs.replace(everything(), samples=7), tmp_path)
    assert other.name == f"{folder.name}-2"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "../x"}, "not a folder name"),
        ({"format_version": 9}, "format version 9"),
        ({"levels": (msgspec.structs.replace(level("eager"), level=""),)}, "is not a name"),
        (
            {"levels": (msgspec.structs.replace(level("eager"), runs=(run(rate=-1.0),)),)},
            "at a rate of -1",
        ),
        (
            {
                "levels": (
                    msgspec.structs.replace(
                        level("eager"), runs=(msgspec.structs.replace(run(), arrivals=()),)
                    ),
                )
            },
            "0 arrivals",
        ),
        (
            {
                "levels": (
                    msgspec.structs.replace(
                        level("eager"), runs=(msgspec.structs.replace(run(), first_tokens=(1,)),)
                    ),
                )
            },
            "without a first token",
        ),
    ],
)
def test_a_record_that_reports_cannot_show_is_refused(
    change: dict[str, object], words: str, tmp_path: Path
) -> None:
    found = msgspec.structs.replace(everything(), **change)
    (tmp_path / "load.json").write_bytes(msgspec.json.encode(found))
    with pytest.raises(GolowError, match=words):
        store.load(tmp_path)
