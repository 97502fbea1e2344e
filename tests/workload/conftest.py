"""Files of models, and what importing them leaves, for the tests of workloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.models.model_files import (
    imports_forgotten,
    written_models,
)


@pytest.fixture
def own_imports() -> Iterator[None]:
    with imports_forgotten():
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written_models(tmp_path)
