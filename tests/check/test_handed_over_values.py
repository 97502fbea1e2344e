"""The file in which a level hands over the values of its operations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golow.check.moved_bundle import working_rounding
from golow.check.steps import step_errors, verify_steps
from golow.levels import ladder
from golow.levels.direct.onednn.level import probe
from golow.levels.starter import Starter
from golow.records.errors import WorkerFailure
from golow.worker.protocol import ValuesReport
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request

pytestmark = pytest.mark.slow
if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


class Spoiled:
    """A worker whose file, or what it says of it, is changed before it is read."""

    def __init__(self, worker: Any, how: str) -> None:
        self._worker, self._how = worker, how
        self.fail = worker.fail

    def values(
        self, batch: int, rate: float, first: int, most: int, file: Path, hard: bool
    ) -> ValuesReport:
        report: ValuesReport = self._worker.values(batch, rate, first, most, file, hard)
        if self._how == "cut":
            os.truncate(file, file.stat().st_size // 2)
        change = {"type": {"dtype": "object"}, "axes": {"order": (7,)}, "place": {"offset": 2**40}}
        stored = {
            name: msgspec.structs.replace(place, **change.get(self._how, {}))
            for name, place in report.stored.items()
        }
        return ValuesReport(following=report.following, stored=stored)


@pytest.mark.parametrize("how", ["cut", "type", "axes", "place"])
def test_a_file_without_a_value_is_the_levels_failure(how: str, tmp_path: Path) -> None:
    bundle, prepared = write_bundle(prepare(Request("lenet5", batch=2)), tmp_path / "bundle")
    write_graph(prepared, bundle)
    chosen = ladder.choose("onednn", "infer", "cpu")
    launch = chosen.prepare(bundle, tmp_path / "cache")
    with Starter() as starter, starter.worker(chosen.name, launch, bundle) as worker:
        worker.load(bundle.folder)
        working = working_rounding(bundle)
        assert not verify_steps(worker, bundle, 0.01, working, tmp_path).failed
        assert not (tmp_path / "values").exists()
        spoiled: Any = Spoiled(worker, how)
        with pytest.raises(WorkerFailure, match="protocol: the file of values has no whole"):
            list(step_errors(spoiled, bundle, 0.01, working, tmp_path))
