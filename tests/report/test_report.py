"""What is printed: it fits, it keeps its units, and the advice says what the figures say."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from golow.compiled.callable_levels import line_to_paste
from golow.levels.ladder import DEFAULT
from golow.measure.environment import environment
from golow.programs.comparison.figures import counted, percentiles, throughput
from golow.programs.comparison.store import save
from golow.records.comparison import (
    Block,
    Check,
    Comparison,
    Conditions,
    Quantity,
    RaceSummary,
    Ratio,
    Run,
    TensorError,
    Word,
)
from golow.records.errors import GolowError
from golow.records.workload import ModelSource, TensorType, Workload
from golow.report.comparison.advice import advice
from golow.report.comparison.formats import document
from golow.report.comparison.table import render
from golow.report.page import comparison as page
from golow.report.records import records_in
from golow.report.units import bytes_text, count_text, seconds_text
from support.examples import examples

WORKLOAD = Workload(
    model="resnet50",
    source=ModelSource(kind="zoo", name="resnet50"),
    mode="infer",
    batch=8,
    inputs=(TensorType(shape=(8, 3, 64, 64), dtype="float32"),),
)
WORST = TensorError(
    name="0/output/0",
    elements=8000,
    scale=1.0,
    error=1e-7,
    eager_error=1e-7,
    limit=1e-6,
    passed=True,
)


def run(level: str, seconds: float, ratio: float, word: Word, build: float = 20.0) -> Run:
    """A run with these headline figures."""
    payback = build / (seconds / ratio - seconds) if word == "faster" else None
    return Run(
        format_version=1,
        id=level,
        created="",
        level=level,
        workload=WORKLOAD,
        check=Check(verdict="match", worst=WORST),
        environment=environment(),
        conditions=Conditions(
            threads=2, affinity=(0, 1), precision="default", wait_policy="PASSIVE"
        ),
        time=Quantity(
            name="time", unit="s", value=seconds, low=0.99 * seconds, high=1.01 * seconds
        ),
        ratio=Ratio(value=ratio, low=0.99 * ratio, high=1.01 * ratio, word=word),
        memory=(
            Quantity(name="resident", unit="B", value=1023 * 2**20),
            Quantity(name="allocated_peak", unit="B", value=1023 * 2**20),
        ),
        life=(
            Quantity(name="ready", unit="s", value=119.9),
            Quantity(name="build", unit="s", value=build),
            Quantity(name="artifact", unit="B", value=1023 * 2**20),
        ),
        build_cached=True,
        payback_iterations=payback,
    )


def comparison(*runs: Run) -> Comparison:
    race = RaceSummary(
        rounds=20,
        seed=0,
        stopped_because="interval",
        interval_target=0.02,
        seconds=30.0,
        contended_share=0.0,
    )
    return Comparison(format_version=1, id="c", created="", workload=WORKLOAD, race=race, runs=runs)


def printed(shown: Comparison, width: int = 100, columns: Sequence[str] = ()) -> str:
    text = io.StringIO()
    render(shown, Console(file=text, width=width), columns=columns)
    return text.getvalue()


@pytest.mark.parametrize("seconds", [9.99e-7, 1.234e-3, 0.9999, 999.0])
def test_the_table_fits_and_nothing_is_cut(seconds: float) -> None:
    levels = [*DEFAULT, "compile:max-autotune"]
    text = printed(comparison(*(run(level, seconds, 0.999, "unclear", 119.9) for level in levels)))
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for whole in (":channels_last", ":max-autotune", "0.989-1.009", "(cached)", "1023 MiB"):
        assert whole in text


TIMED = run("eager", 0.0412, 1.0, "same")
LADDER = comparison(*(run(level, 9.99e-3, 0.999, "unclear", 119.9) for level in DEFAULT))


@examples(30)
@given(st.integers(30, 160), st.floats(1e-7, 1e4))
def test_at_every_width_no_line_is_too_long_and_no_number_is_cut(
    width: int, seconds: float
) -> None:
    text = printed(comparison(run("eager", seconds, 1.0, "same"), *LADDER.runs), width)
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text
    flat = "".join(text.split())
    time = f"{seconds_text(seconds)}"
    assert "".join(time.split()) in flat
    assert "0.989-1.009" in flat


@pytest.mark.parametrize(
    ("width", "there", "gone"),
    [
        (140, ("artifact", "through-", "p50"), ()),
        (100, ("build", "resident"), ("p50",)),
        (80, ("over eager", "resident"), ("p50", "artifact", "through-")),
        (60, ("  time over eager: 0.999 unclear, 0.989-1.009",), ()),
    ],
)
def test_columns_fall_away_in_order(
    width: int, there: tuple[str, ...], gone: tuple[str, ...]
) -> None:
    text = printed(LADDER, width)
    assert all(word in text for word in there)
    assert not any(word in text for word in gone)


def test_columns_that_are_asked_for_never_fall_away() -> None:
    for width in (40, 80):
        text = printed(LADDER, width, ("throughput", "artifact"))
        assert "801" in text and "images/s" in text and "1023 MiB" in text
        assert "over eager" not in text
    with pytest.raises(GolowError, match="no column 'sped'"):
        printed(LADDER, 80, ("sped",))


def test_throughput_counts_what_the_batch_is_made_of() -> None:
    ids = TensorType(shape=(8, 128), dtype="int64")
    tokens = msgspec.structs.replace(WORKLOAD, inputs=(ids,))
    assert counted(WORKLOAD) == ("images", 8)
    assert counted(tokens) == ("tokens", 1024)
    rate = throughput(msgspec.structs.replace(TIMED, workload=tokens))
    assert rate is not None and rate.low is not None
    assert rate.value == pytest.approx(1024 / 0.0412)
    assert rate.low == pytest.approx(rate.value / 1.01)


def test_percentiles_are_of_clean_iterations_and_need_enough_of_them() -> None:
    clean = Block(round=0, position=0, host_ns=tuple(range(1000, 101000, 1000)))
    disturbed = Block(round=1, position=0, host_ns=(10**9,) * 50, contended=True)
    level = msgspec.structs.replace(TIMED, blocks=(clean, disturbed))
    found = {quantity.name: quantity.value for quantity in percentiles(level)}
    assert found == pytest.approx({"p50": 50.5e-6, "p95": 95.05e-6, "p99": 99.01e-6})
    few = msgspec.structs.replace(level, blocks=(Block(round=0, position=0, host_ns=(5, 6, 7)),))
    assert [quantity.name for quantity in percentiles(few)] == ["p50"]


@pytest.mark.slow
def test_the_error_of_a_tensor_that_is_zero_has_a_size() -> None:
    """Its own size is float64's rounding; an error divided by that was 3e+09."""
    zero = msgspec.structs.replace(
        WORST, name="0/gradient/conv.bias", scale=3e-17, error=1e-7, zero_scale=0.5
    )
    level = msgspec.structs.replace(
        run("libtorch", 1.0, 1.0, "same"), check=Check(verdict="match", worst=zero)
    )
    text = printed(comparison(run("eager", 1.0, 1.0, "same"), level))
    assert "2e-07^ 10%" in text
    assert "e+" not in text
    assert "^: the exact value of 0/gradient/conv.bias is zero" in " ".join(text.split())


def test_a_level_that_cannot_run_says_why() -> None:
    missing = msgspec.structs.replace(
        run("libtorch", 1.0, 1.0, "same"),
        check=Check(verdict="unavailable", reason="no C++ compiler; apt-get install g++"),
        time=None,
        ratio=None,
    )
    text = printed(comparison(run("eager", 1.0, 1.0, "same"), missing))
    assert "libtorch: unavailable: no C++ compiler; apt-get install g++" in text


def test_what_was_interrupted_is_said_in_words(tmp_path: Path) -> None:
    """In the table, and in the list of records."""
    shown = comparison(run("eager", 1.0, 1.0, "same"), run("libtorch", 1.0, 1.0, "same"))
    race = msgspec.structs.replace(shown.race, stopped_because="interrupted")
    early = msgspec.structs.replace(
        shown,
        id="early",
        race=msgspec.structs.replace(race, rounds=0),
        runs=tuple(msgspec.structs.replace(run, time=None, ratio=None) for run in shown.runs),
    )
    assert "\nno rounds: interrupted\n" in printed(early)
    assert "20 rounds in 30 s, interrupted;" in printed(msgspec.structs.replace(shown, race=race))
    save(early, tmp_path)
    save(shown, tmp_path)
    assert {one.name: one.says for one in records_in(tmp_path)} == {
        "c": "no level is clearly faster than eager",
        "early": "nothing was timed",
    }


def test_advice_names_the_fastest_level_and_the_soonest_to_pay() -> None:
    text = advice(
        comparison(
            run("eager", 0.040, 1.0, "same"),
            run("torchscript", 0.030, 0.75, "faster", build=0.5),
            run("compile:freezing", 0.020, 0.5, "faster", build=20.0),
            run("compile", 0.050, 1.25, "slower"),
        )
    )
    assert text.startswith("Use compile:freezing for inference at this size: it saves 50%")
    assert "20.0 ms of 40.0 ms" in text
    assert "pays off after 1,000 iterations" in text
    assert "torchscript (25% saved) pays off after 50" in text


def test_every_format_ends_its_advice_with_the_line_to_paste() -> None:
    shown = comparison(run("eager", 0.04, 1.0, "same"), run("onednn", 0.02, 0.5, "faster"))
    line = line_to_paste(shown.workload, "onednn")
    assert line.startswith('f = golow.compile(model, x, level="onednn"')
    assert f"\n  {line}\n" in printed(shown, width=40)
    assert f"\n```python\n{line}\n```\n" in document(shown, "markdown")
    assert f"<pre>{escape(line)}</pre>" in document(shown, "html")
    answer, ladder, _ = page.sections(shown, "r0")
    assert [one["text"] for one in answer["blocks"] if one["kind"] == "code"] == [line]
    [eager, fastest] = ladder["blocks"][0]["details"]
    assert next(one["text"] for one in fastest if one["kind"] == "code") == line
    assert "golow.compile" not in str(eager)  # the module as it is
    slower = comparison(run("eager", 0.04, 1.0, "same"), run("onednn", 0.08, 2.0, "slower"))
    for text in (printed(slower), document(slower, "markdown"), document(slower, "html")):
        assert "golow.compile" not in text


def test_advice_never_names_a_level_that_differs_or_is_unclear() -> None:
    differs = msgspec.structs.replace(
        run("libtorch", 0.01, 0.25, "faster"), check=Check(verdict="differs", reason="wrong")
    )
    text = advice(
        comparison(
            run("eager", 0.04, 1.0, "same"), differs, run("torchscript", 0.039, 0.97, "unclear")
        )
    )
    assert text.startswith("No level is clearly faster than eager")
    assert "torchscript stayed unclear" in text
    assert "libtorch" not in text


def test_advice_begins_with_what_is_wrong_with_eager() -> None:
    reason = "0/output/0 is off by 0.2 (its size is 2): 9 times what rounding explains"
    wrong = WORST.__class__(**msgspec.structs.asdict(WORST) | {"eager_error": math.nan})
    eager = msgspec.structs.replace(
        run("eager", 0.04, 1.0, "same"), check=Check(verdict="differs", reason=reason)
    )
    slow, slower = (
        msgspec.structs.replace(
            run(name, 0.05, ratio, "slower"), check=Check(verdict="match", worst=wrong)
        )
        for name, ratio in (("onednn", 1.2), ("libtorch", 1.4))
    )
    shown = comparison(eager, slow, slower)
    assert advice(shown).startswith(f"Eager itself is wrong: {reason}. Use onednn for inference")
    assert "the fastest of 2 correct levels" in advice(shown)
    assert "Stay with eager" not in advice(shown)
    table = printed(shown)
    assert "wrong" in table.split("eager", 1)[1].split("onednn", 1)[0]  # under its ratio of 1
    assert "nanx" not in table
    alone = comparison(eager)
    assert "No other level passed the check" in advice(alone)
    assert "golow.compile" not in printed(alone)


@given(st.floats(1e-9, 1e6))
def test_times_keep_their_unit(seconds: float) -> None:
    number, unit = seconds_text(seconds).split()
    factor = {"h": 3600, "min": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * factor == pytest.approx(seconds, rel=0.06, abs=1e-9)
    assert len(seconds_text(seconds)) <= 11


@given(st.integers(0, 2**45))
def test_sizes_keep_their_unit(size: int) -> None:
    number, unit = bytes_text(size).split()
    factor = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
    assert float(number) * factor == pytest.approx(size, rel=0.01)


@given(st.floats(0, 1e9))
def test_counts_are_near(count: float) -> None:
    text = count_text(count)
    number = float(text[:-2]) * 1e6 if text.endswith(" M") else float(text.replace(",", ""))
    assert number == pytest.approx(count, rel=0.051, abs=0.51)
