"""oneDNN's layouts, chosen beforehand for tests that prove nothing about the choice.

The level chooses them by measuring, again at every start while other programs use the cores, as
other tests do: that takes up to 8 seconds a start.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from golow.levels.direct.onednn.level import prepare
from golow.levels.direct.onednn.run.tuning import LAYOUTS_FILE, Layouts
from golow.levels.ladder import Launch
from golow.storage.cache import write_sealed
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare as prepare_workload
from golow.workload.request import Request


def settle_layouts(cache: Path, model: str, **asked: Any) -> None:
    """Let the level find in that cache that the library's own choice is the best one for all
    convolutions. asked: what else `Request` takes."""
    with TemporaryDirectory(prefix="golow-layouts-") as folder:
        bundle, prepared = write_bundle(
            prepare_workload(Request(model, **asked)), Path(folder) / "bundle"
        )
        write_graph(prepared, bundle)
        settle(prepare(bundle, "", cache))


def settle(launch: Launch) -> None:
    """The same, for a worker of the level that is about to start."""
    assert launch.built_by_loading is not None
    layouts = launch.built_by_loading.with_name(LAYOUTS_FILE)
    write_sealed(layouts, msgspec.json.encode(Layouts(positions={})))
