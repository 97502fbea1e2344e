"""The folder of a C++ project, which may be written again but never over something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from golow.records.errors import GolowError
from golow.storage.files import is_folder, require_no_file, require_writable
from golow.storage.record_folder import filled_or_removed

MARKER = "<!-- written by golow emit -->"
"""In the README.md of every project."""


@contextmanager
def project_folder(folder: Path) -> Iterator[None]:
    """Create the folder, for a project that the block writes. If that fails, also by Ctrl-C, a
    folder that was empty is removed again. Raises `GolowError` as `require_project_place`."""
    require_project_place(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with filled_or_removed(folder):
        yield


def require_project_place(folder: Path) -> None:
    """Raise `GolowError` for a file, for a folder that holds something else than a project that
    golow wrote, and for one that cannot be written: now rather than after minutes."""
    require_no_file(folder, "name a folder for the project.")
    if is_folder(folder) and any(folder.iterdir()) and not _is_ours(folder / "README.md"):
        raise GolowError(
            f"{folder} is not empty and is not a project that golow wrote",
            "name an empty folder, or one that does not exist yet.",
        )
    require_writable(folder, "name another folder.")


def _is_ours(readme: Path) -> bool:
    return readme.is_file() and MARKER in readme.read_text(encoding="utf-8", errors="replace")
