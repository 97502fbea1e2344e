"""The folder of a C++ project, which may be written again but never over something else."""

from __future__ import annotations

from pathlib import Path

from golow.records.errors import GolowError

MARKER = "<!-- written by golow emit -->"
"""In the README.md of every project."""


def take_folder(folder: Path) -> None:
    """Create the folder. Raises `GolowError` for a file, and for a folder that holds something else
    than a project that golow wrote."""
    if folder.exists() and not folder.is_dir():
        raise GolowError(f"{folder} is a file", "name a folder for the project.")
    folder.mkdir(parents=True, exist_ok=True)
    readme = folder / "README.md"
    ours = readme.is_file() and MARKER in readme.read_text(encoding="utf-8", errors="replace")
    if any(folder.iterdir()) and not ours:
        raise GolowError(
            f"{folder} is not empty and is not a project that golow wrote",
            "name an empty folder, or one that does not exist yet.",
        )
