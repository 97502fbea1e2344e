"""``golow data``, as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from golow.commands.data import data_app
from golow.data.prepare import prepare_dataset
from golow.records.errors import GolowError
from support.data.dataset_files import drawn, write_cifar10, write_mnist


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOLOW_DATA", str(tmp_path / "root"))
    write_mnist(tmp_path / "root", drawn((1, 28, 28), train=20, test=7))
    return tmp_path / "root"


def golow_data(*words: str) -> Result:
    result = CliRunner().invoke(data_app, list(words))
    if isinstance(result.exception, GolowError):
        raise result.exception
    return result


def row(result: Result, name: str) -> str:
    [line] = [line for line in result.stdout.splitlines() if line.startswith(name)]
    return " ".join(line.split())


def test_list() -> None:
    result = golow_data("list")
    assert result.exit_code == 0
    assert row(result, "mnist") == "mnist handwritten digits 10 60,000 10,000 1x28x28"
    assert "20" in row(result, "voc2012")
    assert row(result, "folder:PATH")
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_status(root: Path, tmp_path: Path) -> None:
    result = golow_data("status")
    assert row(result, "digits") == "digits yes embedded"
    assert row(result, "mnist").startswith("mnist partly")
    assert row(result, "cifar10") == "cifar10 no golow data fetch cifar10"
    assert "0 B of prepared files in" in result.stdout

    file, _ = prepare_dataset("mnist", root, 32, tmp_path / "cache")
    result = golow_data("status", "--data-root", str(tmp_path))
    assert row(result, "mnist  ") == "mnist no golow data fetch mnist"
    assert row(result, "mnist train").startswith("mnist train 20 1x32x32")
    assert max(map(len, result.stdout.splitlines())) <= 100
    file.write_bytes(b"")
    assert "damaged" in golow_data("status").stdout


def test_verify(root: Path, tmp_path: Path) -> None:
    """The publisher's sums are not those of random pixels; golow's own are right."""
    file, _ = prepare_dataset("mnist", root, None, tmp_path / "cache")
    result = golow_data("verify", "mnist")
    assert result.exit_code == 1
    assert result.stdout.count("instead of the publisher's") == 4
    assert result.stdout.count(": ok") == 2

    for raw in (root / "MNIST/raw").iterdir():
        raw.unlink()
    assert golow_data("verify").exit_code == 0
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    result = golow_data("verify")
    assert result.exit_code == 1
    assert f"{file}: is not a prepared data set: its checksum is" in result.stdout


def test_verify_of_what_is_not_there(root: Path) -> None:
    with pytest.raises(GolowError, match="cifar10 is not in"):
        golow_data("verify", "cifar10")
    write_cifar10(root, drawn((3, 32, 32), train=10, test=2))
    assert (
        golow_data("verify", "cifar10").stdout.count("6,146 bytes instead of the publisher's") == 6
    )


def test_fetch_of_what_is_no_data_set(root: Path) -> None:
    with pytest.raises(GolowError, match="no data set 'mnits'"):
        golow_data("fetch", "mnits")
    with pytest.raises(GolowError, match="nothing to download for digits"):
        golow_data("fetch", "digits")
