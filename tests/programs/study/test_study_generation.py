"""A study whose cells are generations of text: prompt and tokens are axes."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

import golow
from golow.commands.study import study_app
from golow.programs.study.cells import cells, key
from golow.programs.study.file import read_study
from golow.programs.study.store import StudyFolder, to_toml
from golow.programs.study.study_record import CellGeneration, StudyGeneration, asks
from golow.records.errors import GolowError
from golow.report.study.table import cell_text, study_text
from golow.report.study_grids import export_grid, grid_of
from support.places import SUPPORT
from support.records.generations import EVERYTHING

STUDY = """\
name = "texts"
model = "gpt2_small"
levels = ["onednn", "eager"]
batch = [1, 4]
precision = ["default", "bf16"]
threads = 1
[generation]
prompt = [8, 16]
tokens = 6
[limits]
seconds = 0.3
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "study.toml"
    file.write_text(text)
    return file


def test_a_study_of_texts_is_read_and_written(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, STUDY))
    assert study.generation == StudyGeneration(prompt=(8, 16), tokens=(6,))
    assert read_study(written(tmp_path, to_toml(study))) == study
    asked = cells(study, 2)
    axes = [(c.batch, c.precision, c.generation and c.generation.prompt) for c in asked]
    pairs = [(p, n) for p in ("default", "bf16") for n in (8, 16)]
    assert axes == [(batch, *pair) for batch in (1, 4) for pair in pairs]
    assert {cell.levels for cell in asked} == {("eager", "eager:static", "onednn")}
    assert all(asks(study, cell) and not cell.is_compared for cell in asked)
    assert len({key(cell) for cell in asked}) == len(asked)
    assert "prompt 8, 16; tokens 6" in study_text(study)
    assert cell_text(asked[0]) == "gpt2_small infer, batch 1, 6 tokens after 8, 1 thread"


def test_other_lengths_are_other_cells(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, STUDY))
    longer = StudyGeneration(prompt=(8,), tokens=(7,))
    assert not asks(msgspec.structs.replace(study, generation=longer), cells(study, 2)[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tokens = 6", "token = 6"), "line 9: a study has no key generation.token"),
        (("tokens = 6\n", ""), "tokens"),
        (("tokens = 6", "tokens = [6, 1]"), "line 9: tokens is \\[6, 1\\]"),
        (("[8, 16]", "[8, 8]"), "line 8: prompt is"),
        (("[8, 16]", "[]"), "line 8: prompt is"),
        (('"bf16"', '"tf32"'), "line 5: no text is generated in tf32 with the device cpu"),
        (('["onednn"', '["libtorch"'), "line 3: there is no level 'libtorch' that generates"),
        (("threads", "resolution = 32\nthreads"), "gpt2_small takes no images"),
        (("threads", "channels = 3\nthreads"), "texts have no channels"),
        (("threads", 'mode = "train"\nthreads'), "line 6: text is generated in inference"),
        (("[limits]", "[load]\nrate = 1\n[limits]"), "are two studies"),
        (("[generation]\nprompt = [8, 16]\ntokens = 6\n", ""), "bf16 is for a GPU"),
    ],
)
def test_a_mistake_names_its_line(change: tuple[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(GolowError, match=words):
        read_study(written(tmp_path, STUDY.replace(*change)))


def test_cells_are_shown_and_exported_by_their_axes(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, STUDY))
    one = msgspec.structs.replace(EVERYTHING, cases=EVERYTHING.cases[:1])
    drawn = [(cell, one) for cell in cells(study, 2) if cell.batch == 1]
    grid = grid_of(study, drawn)
    console = Console(file=io.StringIO(), width=120)
    console.print(grid.table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "precision" in text
    assert "model" not in text  # all cells have the same
    assert f"{1 / 0.02:.1f}" in text  # tokens a second of eager
    file = tmp_path / "texts.csv"
    export_grid(grid, "csv", file)
    rows = list(csv.DictReader(file.open()))
    assert len(rows) == len(drawn) * len(one.cases[0].runs)
    assert float(rows[0]["tokens_per_second"]) == pytest.approx(1 / 0.02)
    with pytest.raises(GolowError, match="generations cannot be exported as parquet"):
        export_grid(grid, "parquet", file)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_commands")
def test_a_study_of_texts_is_measured_shown_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = f"{SUPPORT / 'models' / 'text_models.py'}:varied_gpt2"
    one = STUDY.replace('"gpt2_small"', f'"{model}"').replace("[1, 4]", "2")
    one = one.replace('["onednn", "eager"]', '["eager"]').replace("[8, 16]", "[4, 8]")
    one = one.replace('"default", "bf16"', '"default"')
    result = golow.run_study(written(tmp_path, one), out=tmp_path, quiet=True)
    assert [record.state for record in result.records.values()] == ["done", "done"]
    made = [cell.generation for cell, _ in result.generations()]
    assert made == [CellGeneration(prompt=prompt, tokens=6) for prompt in (4, 8)]
    for _, generation in result.generations():
        assert [run.verdict for run in generation.cases[0].runs] == ["match", "match"]
    shown = CliRunner().invoke(study_app, ["show", "texts", "--out", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "tok/s" in shown.output
    exported = CliRunner().invoke(study_app, ["export", "texts", "--out", str(tmp_path)])
    assert exported.exit_code == 0, exported.output
    with (tmp_path / "texts.csv").open() as file:
        assert {row["prompt"] for row in csv.DictReader(file)} == {"4", "8"}
    with pytest.raises(GolowError, match="are generations, not comparisons"):
        StudyFolder(result.folder).comparison(next(iter(result.records.values())))
