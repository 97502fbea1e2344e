"""What a comparison must not leave behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import mentioning, soon


@pytest.fixture
def nobody_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process and no temporary file outlives the test. Processes are known by the environment
    that they inherit, so that those whose parent has ended are seen too."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("GOLOW_TEST", str(folder))
    yield
    assert soon(lambda: mentioning(str(folder)) == [])
    assert list(folder.iterdir()) == []
