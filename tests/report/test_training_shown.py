"""What a training shows: its table, and its progress while it lasts."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from golow.programs.training.observer import TrainingProgress
from golow.programs.training.pieces import FASTER, Pace
from golow.programs.training.training_record import CurveVerdict, Training, TrainingRun
from golow.records.comparison import Check, Quantity
from golow.report.training.progress import TrainingProgressDisplay, progress_text
from golow.report.training.table import render
from support.records.drawn_trainings import epoch, paper_like, run, training


def shown(found: Training) -> str:
    text = io.StringIO()
    render(found, Console(file=text, width=100))
    return text.getvalue()


def on_gpu(of: TrainingRun) -> TrainingRun:
    """With memory of a GPU whose driver does not tell programs apart."""
    added = Quantity(name="device_added", unit="B", value=1.5 * 2**30)
    epochs = tuple(msgspec.structs.replace(epoch, memory=(added,)) for epoch in of.epochs)
    return msgspec.structs.replace(of, epochs=epochs)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("initialisations", [("default",), ("default", "kaiming", "zero_gamma")])
def test_the_table_fits_100_columns(device: str, initialisations: tuple[str, ...]) -> None:
    levels = ("eager", "eager:channels_last", "compile:freezing-cudagraphs", "cudnn:autotune")
    found = paper_like(levels, initialisations, steps=20)
    plan = msgspec.structs.replace(found.plan, device=device)
    verdicts = tuple(
        CurveVerdict(level=level, initialisation=name, word="same", reason="over 3 seeds: all")
        for level in levels[1:]
        for name in initialisations
    )
    missing = msgspec.structs.replace(
        run("libtorch", initialisation=initialisations[0]),
        check=Check(verdict="unavailable", reason="there is no compiler"),
    )
    runs = (*map(on_gpu if device == "cuda" else (lambda r: r), found.runs), missing)
    plan = msgspec.structs.replace(plan, levels=(*plan.levels, "libtorch"))
    text = shown(msgspec.structs.replace(found, plan=plan, runs=runs, verdicts=verdicts))
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text  # nothing is cut off
    assert "3/3 seeds" in text
    assert ("GPU use" in text) == (device == "cuda")
    assert ("kaiming" in text) == ("kaiming" in initialisations)
    print(text)


def test_the_table_says_what_became_of_each_level() -> None:
    refused = msgspec.structs.replace(
        run("compile"), check=Check(verdict="unavailable", reason="there is no C++ compiler")
    )
    broken = run("cudnn", [epoch(1)], failure="died: it was ended by SIGKILL")
    found = training(
        [run("eager", [epoch(1), epoch(2)]), refused, broken],
        verdicts=[
            CurveVerdict(level="cudnn", initialisation="default", word="unclear", reason="a reason")
        ],
    )
    text = shown(found)
    assert "1 of 3 runs finished" in text
    assert "compile: unavailable: there is no C++ compiler" in text
    assert "cudnn: unclear: a reason" in text
    assert "cudnn: failed: seed 0, after 1 epochs: died: it was ended by SIGKILL" in text
    assert "90.00%" in text


def test_times_of_a_machine_that_was_busy_are_marked() -> None:
    busy = msgspec.structs.replace(epoch(1), wait_share=0.25)
    text = shown(training([run("eager", [busy]), run("cudnn", [epoch(1)])]))
    assert "133 us*" in text
    assert "waited for a core, up to 25% of the time, summed over threads" in " ".join(text.split())
    assert "*" not in shown(training([run("eager", [epoch(1)])]))


def test_a_training_of_which_nothing_was_trained_is_shown_too() -> None:
    plan = paper_like(seeds=1, epochs=1, steps=1).plan
    nothing = shown(Training(plan=plan, runs=()))
    assert "0 of 4 runs finished" in nothing
    assert "no level has begun to train; golow train --resume FOLDER continues" in nothing
    assert "accuracy" not in nothing  # no table without rows


PROGRESS = TrainingProgress("eager", "default", 0, 2, 10, 40, 469, 0.25, 0.975, 12345.6, 75.0)


def test_progress_is_a_line_an_epoch_where_there_is_no_terminal() -> None:
    text = io.StringIO()
    with TrainingProgressDisplay(Console(file=text, width=60)) as progress:
        progress.stage("eager (1 of 4): loading")
        progress.counted("mnist train", 1000, 60000)
        progress.trained(PROGRESS)
        progress.trained(PROGRESS._replace(batch=469))
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("eager (1 of 4): loading")
    assert lines[1] == (
        "eager (seed 0)  epoch 2/10, loss 0.2500, accuracy 97.50%, 12,346 samples/s, 75.0 s left"
    )
    assert len(lines) == 2


def test_progress_on_a_terminal_draws_a_bar_and_leaves_a_line_a_run() -> None:
    text = io.StringIO()
    console = Console(file=text, width=110, force_terminal=True, color_system=None)
    with TrainingProgressDisplay(console) as progress:
        progress.counted("mnist train", 1000, 60000)
        progress.trained(PROGRESS)
        progress.trained(PROGRESS._replace(epoch=10, batch=469, seconds_left=0.0))
        progress.stage("torchscript (2 of 4): loading")
    drawn = text.getvalue()
    assert "preparing mnist train" in drawn
    assert "1,000 of 60,000 samples" in drawn
    assert "━" in drawn
    assert f"eager (seed 0)  {progress_text(PROGRESS._replace(epoch=10, seconds_left=0))}" in drawn


def test_the_pace_comes_to_a_second_a_piece() -> None:
    pace, asked = Pace(), []
    for _ in range(8):
        asked.append(pace.batches)
        pace.took(pace.batches, 0.01 * pace.batches)
    assert asked[:3] == [1, FASTER, FASTER**2]
    assert asked[-1] == 100
    pace.took(100, 500.0)
    assert pace.batches == 1
