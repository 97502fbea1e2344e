"""Inductor cannot build in a folder whose path has a space: golow says so before it tries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from golow.levels.aotinductor import level as aotinductor
from golow.levels.torch import compile as compile_level
from golow.records.errors import Unsupported
from golow.workload.bundle import Bundle
from support.workers.bundles import product_bundle


@pytest.mark.parametrize("prepare", [compile_level.prepare, aotinductor.prepare])
def test_a_cache_with_a_space_in_its_path(
    prepare: Callable[[Bundle, str, Path], object], tmp_path: Path
) -> None:
    bundle = product_bundle(tmp_path / "bundle")
    with pytest.raises(Unsupported, match="because of the space in that path; name another cache"):
        prepare(bundle, "", tmp_path / "my cache")
