"""A study as throughput: a row a level, a column a model; no number without a proof or rounds."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from golow.report.study.measures import compared_levels
from golow.report.study.planes import planes
from golow.report.study.rows import Measured, rows_of
from golow.report.study.table import render
from golow.report.study.throughput import render_throughput
from support.records.drawn_studies import cell, measured, run


def printed(width: int = 100) -> str:
    both = [cell(model=name, batch=16) for name in ("resnet50", "alexnet")]
    cells = [
        measured(
            asked,
            [
                run(asked, "eager", 0.016 * factor, 1.0),
                run(asked, "cudnn", 0.004 * factor, 0.25, rounds=rounds),
                run(asked, "jax", None, verdict="differs", reason="another result"),
            ],
        )
        for asked, factor, rounds in zip(both, (1, 2), (12, 3), strict=True)
    ]
    text = io.StringIO()
    render_throughput("frameworks", cells, Console(file=text, width=width))
    return text.getvalue()


def test_images_a_second_stand_in_the_row_of_the_level() -> None:
    lines = printed().splitlines()
    eager = next(line for line in lines if line.startswith(" eager"))
    assert "1,000" in eager and "500" in eager
    assert any("images/s" in line for line in lines)
    assert max(map(len, lines)) <= 100


def of_ranks(ranks: int, seconds: dict[str, float], rounds: int = 12, batch: int = 8) -> Measured:
    asked = cell(batch=batch, mode="train", device="cpu", levels=tuple(seconds), ranks=ranks)
    return measured(
        asked, [run(asked, level, time, 1.0, rounds=rounds) for level, time in seconds.items()]
    )


def test_ranks_have_their_efficiency() -> None:
    """Relative to the level's fewest ranks; eager is the first rank of ddp."""
    cells = [
        of_ranks(1, {"eager": 1.0, "onednn": 0.5}),
        of_ranks(2, {"ddp": 1.25, "onednn": 0.5}),
        of_ranks(4, {"ddp": 2.0, "onednn": 0.625}),
        of_ranks(8, {"ddp": 2.0}, rounds=3),
    ]
    text = io.StringIO()
    render_throughput("scaling", cells, Console(file=text, width=100))
    _, _, table = text.getvalue().partition(": scaling over ranks")
    lines = [line.split() for line in table.splitlines()]
    assert ["level", "1", "2", "4", "8"] in lines
    at = next(n for n, line in enumerate(lines) if line[:1] == ["ddp"])
    assert lines[at] == ["ddp", "8.00", "12.8", "16.0", "unclear"]
    assert [share for share in lines[at + 1] if "(" not in share] == ["80%", "50%"]
    at = next(n for n, line in enumerate(lines) if line[:1] == ["onednn"])
    assert lines[at] == ["onednn", "16.0", "32.0", "51.2"]
    assert [share for share in lines[at + 1] if "(" not in share] == ["100%", "80%"]
    assert "scaling" not in printed()


@pytest.mark.parametrize("batches", [(8,), (8, 16)])
def test_ratios_of_several_ranks_alone_have_their_own_baseline(batches: tuple[int, ...]) -> None:
    """There is no eager in such a study."""
    cells = [of_ranks(2, {"ddp": 1.0, "onednn": 0.25}, batch=batch) for batch in batches]
    text, rows = io.StringIO(), rows_of("scaling", cells)
    render(rows, Console(file=text, width=100))
    assert "time relative to ddp" in text.getvalue()
    lines = [line.split() for line in text.getvalue().splitlines()]
    if len(batches) == 1:
        assert ["resolution", "ddp", "onednn"] in lines
    else:
        assert not any(line[:1] == ["ddp"] for line in lines)
    [plane] = planes(rows)
    assert compared_levels(plane) == ["onednn"]


def test_what_differs_or_has_too_few_rounds_has_no_number() -> None:
    lines = printed().splitlines()
    cudnn = next(line for line in lines if line.startswith(" cudnn"))
    jax = next(line for line in lines if line.startswith(" jax"))
    assert "4,000" in cudnn and "unclear" in cudnn and "2,000" not in cudnn
    assert not any(letter.isdigit() for letter in jax) and "diff" in jax
