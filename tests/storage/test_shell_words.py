"""Paths in printed commands: a shell takes each as one word, and no command as an option."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from golow.storage.shell_words import shell_word


@pytest.mark.parametrize(
    "name", ["runs", "my runs", "-x", "it's", "$HOME", "a;b", "größe", 'say "so"', "~x", "a*"]
)
def test_a_shell_gives_the_path_back(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    command = f"cd {shell_word(name)} && pwd"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tmp_path / name}\n"


def test_a_plain_path_stays_as_it_is() -> None:
    assert shell_word(Path("runs/20261120-mlp")) == "runs/20261120-mlp"
