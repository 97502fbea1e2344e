"""Workers load beside one another, as many as there is room for."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from golow.levels.generation.loaded_before import has_loaded, times_nothing
from golow.levels.generation.table import LEVELS
from golow.observer import Silent
from golow.programs.generation.loading import Loading, load_together, room
from golow.records.errors import WorkerFailure
from golow.records.text import TextWorkload
from golow.records.workload import ModelSource
from golow.worker.protocol import VERSION
from golow.worker.text_client import TextWorker
from golow.worker.time_limits import Limits

WORK = TextWorkload(
    model="it", source=ModelSource(kind="zoo", name="it"), vocabulary=9, batch=1, prompt=4, tokens=4
)
GIB = 1 << 30
# Answers when the file of its first argument is there, and makes that of its second one.
WORKER = """
import json, pathlib, sys, time
waits, makes = map(pathlib.Path, sys.argv[1:])
for line in sys.stdin:
    if json.loads(line)["do"] == "quit":
        break
    makes.touch()
    while not waits.exists():
        time.sleep(0.01)
    print('{"ok": true, "phases": {}, "protocol": VERSION, "choices": {}}', flush=True)
"""


class Loads:
    """Starts workers that wait for one another, and remembers the order in which they finish."""

    def __init__(self, folder: Path, stack: ExitStack, limit: float = 60.0) -> None:
        self.finished: list[str] = []
        self._folder, self._stack, self._limit = folder, stack, limit

    def start(self, name: str, waits: str) -> Loading:
        program = WORKER.replace("VERSION", str(VERSION))
        files = str(self._folder / waits), str(self._folder / name)
        limits = Limits(load=self._limit)
        command = (sys.executable, "-c", program, *files)
        worker = self._stack.enter_context(TextWorker(name, command, threads=1, limits=limits))
        worker.begin_loading(self._folder)

        def finish() -> None:
            worker.finish_loading()
            self.finished.append(name)

        return Loading(name, worker, finish)


def test_workers_load_beside_one_another_and_finish_as_they_answer(tmp_path: Path) -> None:
    with ExitStack() as stack:
        loads = Loads(tmp_path, stack)
        needs = (("first", "third"), ("second", "second"), ("third", "third"))
        # The first one answers only if the third one is asked to load meanwhile.
        load_together([partial(loads.start, *need) for need in needs], 2, Silent())
        assert sorted(loads.finished) == ["first", "second", "third"]
        assert loads.finished[0] == "second"


def test_one_that_never_answers_is_ended_in_time(tmp_path: Path) -> None:
    with ExitStack() as stack:
        loads = Loads(tmp_path, stack, limit=0.5)
        with pytest.raises(WorkerFailure, match="hung: no answer to `load`"):
            load_together([partial(loads.start, "alone", "never")], 1, Silent())


def test_a_level_that_cannot_start_leaves_its_place_to_the_next(tmp_path: Path) -> None:
    with ExitStack() as stack:
        loads = Loads(tmp_path, stack)
        load_together([lambda: None, partial(loads.start, "it", "it")], 1, Silent())
        assert loads.finished == ["it"]


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({"cores": 32, "host": 256 * GIB, "device": 139 * GIB}, 8),
        ({"cores": 32, "host": 256 * GIB, "device": 27 * GIB}, 2),  # each takes 1 + 5 * 2.5 GiB
        ({"cores": 32, "host": 12 * GIB, "device": 139 * GIB}, 2),
        ({"cores": 2, "host": 256 * GIB, "device": 139 * GIB}, 1),
        ({"cores": 32, "host": 256 * GIB, "device": 2 * GIB}, 1),
    ],
)
def test_room_is_counted_by_cores_and_memory(given: dict[str, int], most: int) -> None:
    assert room(5 * GIB // 2, **given) == most


def test_a_level_that_times_kernels_has_company_once_the_cache_has_its_choices(
    tmp_path: Path,
) -> None:
    levels = {level.name: level for level in LEVELS}
    cudnn = levels["cudnn"]
    assert times_nothing(levels["eager"], WORK, tmp_path)
    assert not times_nothing(cudnn, WORK, tmp_path)
    has_loaded(cudnn, WORK, tmp_path)
    assert times_nothing(cudnn, WORK, tmp_path)
    assert not times_nothing(levels["compile:static"], WORK, tmp_path)
