"""A hidden file is readable here, and has no name."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from golow.storage.hidden_file import HiddenFile


def test_what_is_hidden_can_be_read_here_and_has_no_name(tmp_path: Path) -> None:
    file = tmp_path / "expected.safetensors"
    save_file({"x": torch.arange(4.0)}, file)
    hidden = HiddenFile(file)
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        with safe_open(hidden.path, "pt") as found:
            assert found.get_tensor("x").tolist() == [0, 1, 2, 3]


def test_it_is_gone_with_the_object(tmp_path: Path) -> None:
    file = tmp_path / "expected"
    file.write_text("secret")
    hidden = HiddenFile(file)
    path = hidden.path
    del hidden
    gc.collect()
    assert not path.exists() or path.read_text() != "secret"


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        HiddenFile(tmp_path / "missing")
