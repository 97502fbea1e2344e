"""A place that cannot be written, a file where a folder is meant, or a folder where a file is, is
refused before a model is built or a record is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import golow

QUANTIZED = ("quantize", "none", "--calibrate", "digits")
FILE = "FILE is a file, not a folder"
NO_FILE = [
    ("compare", "none", "--out", "FILE"),
    ("audit", "none", "--out", "FILE"),
    ("load", "none", "--out", "FILE"),
    ("generate", "none", "--out", "FILE"),
    ("profile", "none", "--save", "FILE"),
    ("train", "none", "--dataset", "digits", "--out", "FILE"),
    ("train", "none", "--dataset", "digits", "--figures", "FILE"),
    (*QUANTIZED, "--out", "q.safetensors", "--record", "FILE"),
    ("emit", "none", "--out", "FILE"),
    ("study", "list", "--out", "FILE"),
    ("study", "run", "small", "--out", "FILE"),
    ("study", "show", "small", "--out", "FILE"),
    ("study", "figures", "small", "--out", "FILE"),
    ("study", "figures", "small", "--out", "figures", "--studies", "FILE"),
    ("data", "status", "--data-root", "FILE"),
    ("data", "verify", "mnist", "--data-root", "FILE"),
    ("data", "fetch", "mnist", "--data-root", "FILE"),
]
UNWRITABLE = [
    ("compare", "none", "--out", "/proc/x"),
    ("audit", "none", "--out", "/proc/x"),
    ("load", "none", "--out", "/proc/x"),
    ("generate", "none", "--out", "/proc/x"),
    ("profile", "none", "--save", "/proc/x"),
    ("train", "lenet5", "--dataset", "digits", "--out", "/proc/x"),
    ("study", "run", "small", "--out", "/proc/x"),
    ("study", "figures", "small", "--out", "/proc/x"),
    ("report", "nowhere", "--out", "/proc/x"),
    ("run", "nowhere", "--input", "FILE", "--out", "/proc/x"),
    ("quantize", "lenet5", "--calibrate", "digits", "--out", "/proc/x.safetensors"),
    ("data", "fetch", "mnist", "--data-root", "/proc/x"),
]
NO_FOLDER = [
    ("build", "none", "--out", "."),
    ("run", "nowhere", "--input", "FILE", "--out", "."),
    ("report", "nowhere", "--out", "."),
    ("compare", "none", "--report", "."),
]
NO_STREAM = [
    ("report", "nowhere", "--out", "-"),
    ("run", "nowhere", "--input", "FILE", "--out", "-"),
    ("compare", "none", "--report", "-"),
    ("study", "figures", "small", "--out", "figures", "--studies", "-"),
]
CASES = [
    *((typed, FILE) for typed in NO_FILE),
    *((typed, "/proc/x") for typed in UNWRITABLE),
    *((typed, ". is a folder") for typed in NO_FOLDER),
    *((typed, "- means standard output, but this option writes files") for typed in NO_STREAM),
]


@pytest.mark.parametrize(("typed", "said"), CASES, ids=[" ".join(typed) for typed, _ in CASES])
def test_a_place_of_the_wrong_kind_is_refused(
    typed: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "FILE").write_text("a file")
    ended = golow(*typed, folder=tmp_path)
    assert ended.status == 2, ended.output
    assert said in ended.error, ended.output
    assert [path.name for path in tmp_path.iterdir()] == ["FILE"]
