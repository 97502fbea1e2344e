"""A level that wants more memory than there is."""

from __future__ import annotations

import sys
from pathlib import Path

import golow
from golow.records.workload import Device
from support.places import WORKERS
from support.workers.bundles import NETWORKS

GREEDY = WORKERS / "greedy.py"


def require_out_of_memory_recorded(cache: Path, device: Device) -> None:
    """A level that wants more memory than there is fails by name, and the others go on."""
    result = golow.compare(
        f"{NETWORKS}:Linear",
        levels=["eager"],
        workers={"greedy": [sys.executable, str(GREEDY)]},
        batch=4,
        input_shape=(16,),
        device=device,
        threads=1,
        time_limit=0.1,
        cache=cache,
    )
    greedy = result.run("greedy")
    assert greedy.check.verdict == "failed"
    assert greedy.check.reason.startswith("out of memory:")
    print(result.run("eager").check.reason, result.run("eager").log)
    assert result.run("eager").check.verdict == "match"
    assert result.run("eager").time is not None
