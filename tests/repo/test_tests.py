"""A test module imports no other one: what two of them share is in tests/support."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from support.places import TESTS


def imported(text: str) -> Iterator[str]:
    """The test modules that a file imports, wherever in it that stands."""
    for item in ast.walk(ast.parse(text)):
        names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
        if isinstance(item, ast.ImportFrom):
            module = item.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in item.names)]
        yield from (name for name in names if is_test(name))


def is_test(name: str) -> bool:
    """True if that is the name of a module of tests."""
    path = TESTS / f"{name.replace('.', '/')}.py"
    return path.name.startswith("test_") and path.is_file()


@pytest.mark.slow
def test_no_test_is_imported() -> None:
    found = {file: list(imported(file.read_text())) for file in sorted(TESTS.rglob("*.py"))}
    importing = {str(file.relative_to(TESTS)): names for file, names in found.items() if names}
    assert importing == {}, "move what is shared into tests/support"


def test_an_import_of_a_test_is_seen() -> None:
    for text in (
        "from repo.test_tests import imported",
        "from repo import test_tests",
        "import repo.test_tests",
        "def late():\n    from repo.test_tests import imported",
    ):
        assert list(imported(text)) == ["repo.test_tests"]
    for text in ("import pytest", "from support.places import TESTS", "from torch import test_x"):
        assert list(imported(text)) == []
