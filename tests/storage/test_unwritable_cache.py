"""A cache that cannot be written is named, and costs no measured result. A file stands where a
folder of the cache would be made, which stops every user, also root."""

from __future__ import annotations

from pathlib import Path

import pytest

import golow
from golow.measure import peak
from golow.storage.cache import cache_errors
from support.command import golow as command

MODEL = ("build", "mlp", "--batch", "2", "--out", "net.golow")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    for name in ("called", "peak"):
        (folder / name).touch(mode=0o600)
    monkeypatch.setenv("GOLOW_CACHE", str(folder))
    return folder


def test_a_command_names_the_cache(cache: Path, tmp_path: Path) -> None:
    ended = command(*MODEL, folder=tmp_path)
    assert ended.status == 2
    assert f"the cache {cache} cannot be written" in ended.error
    assert "GOLOW_CACHE=/large/disk" in ended.error


def test_other_errors_of_the_system_pass(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), cache_errors():
        (tmp_path / "nowhere").read_bytes()
    with pytest.raises(golow.GolowError, match="cannot be written"), cache_errors(cache):
        (cache / "called" / "file").touch()


@pytest.mark.slow
def test_a_figure_of_the_machine_is_not_lost(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "SECONDS", 0.01)
    assert peak.measured_peak("cpu", "default", 1, cache) is not None
