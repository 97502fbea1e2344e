"""What a level of texts has compiled is found again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from golow.levels.generation.table import LEVELS
from golow.records.text import TextWorkload
from golow.records.workload import ModelSource

SOURCE = ModelSource(kind="huggingface", name="/tmp/first/it.json", configuration='{"layers": 2}')
WORK = TextWorkload(model="it", source=SOURCE, vocabulary=9, batch=1, prompt=4, tokens=4)
COMPILED = next(level for level in LEVELS if level.name == "compile:static")


def folder_of(source: ModelSource, work: TextWorkload = WORK) -> str:
    work = msgspec.structs.replace(work, source=source)
    return COMPILED.environment(work, Path("/cache"))["TORCHINDUCTOR_CACHE_DIR"]


def test_a_configuration_is_the_same_wherever_its_file_is() -> None:
    moved = msgspec.structs.replace(SOURCE, name="/tmp/second/it.json")
    other = msgspec.structs.replace(SOURCE, configuration='{"layers": 3}')
    assert folder_of(moved) == folder_of(SOURCE) != folder_of(other)
    assert folder_of(SOURCE, msgspec.structs.replace(WORK, threads=2)) != folder_of(SOURCE)


def test_files_of_one_name_are_not_the_same() -> None:
    first, second = (ModelSource(kind="file", name=f"/{name}/it.py") for name in ("one", "two"))
    assert folder_of(first) != folder_of(second)
