"""Built-in levels with a fault that is in their timed iterations alone, each by its own mechanism.

``python tests/support/plants/planted_levels.py NAME CACHE`` serves the level that the name begins
with. What a level answers to `outputs` is right: another path of it runs then.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from golow.levels.libtorch import level as libtorch
from golow.worker.protocol import LoadReport
from golow.worker.serve import end_with_parent, run
from golow.workload.bundle import Bundle

SKIP_UPDATE = (
    "if (program_->trains) update(optimizer_);",
    "if (position_ % 2) update(optimizer_);",
)
STALE_INPUT = (
    "return batches_[position_++ % batches_.size()];",
    "return batches_[position_++ * 0];",
)
# All are in one program; a step that skips every second update does so with a stale input, too.
CPP_FAULTS = {"libtorch-skipped-update": SKIP_UPDATE, "libtorch-stale-input": STALE_INPUT}


# ---------------------------------------------------------------- oneDNN


def onednn_program(fault: str, cache: Path) -> Any:
    """The level's program with a plan that is run otherwise while it is timed."""
    from golow.levels.direct.onednn.level import prepare
    from golow.levels.direct.onednn.run.program import OneDnn

    class Planted(OneDnn):
        def __init__(self) -> None:
            """The folders are known once the bundle is."""

        def load(self, bundle: Path) -> LoadReport:
            launch = prepare(Bundle(bundle), "", cache)
            folders = map(Path, launch.command[4:])
            OneDnn.__init__(self, *folders)
            return super().load(bundle)

        def run_batch(self, index: int) -> None:
            joined, calls = self.execution._joined, self.execution._calls
            kept = list(calls)
            if fault == "last-step-missing":
                kept = calls[:-1]
            if fault == "skipped-update" and self._position % 2 == 0:
                steps = (self.built.plan.steps[i] for i in self.execution._main)
                kept = [c for c, s in zip(calls, steps, strict=True) if s.phase != "update"]
            self.execution._joined = kept
            self._pointing[0 if fault == "stale-input" else index]()
            self.execution.run()
            self.execution._joined = joined

    return Planted


# ---------------------------------------------------------------- LibTorch


def serve_libtorch(name: str, cache: Path) -> None:
    """Answer `load` by building the program from sources with a fault in them, and let that answer
    everything from then on."""
    from golow.levels.libtorch import build

    end_with_parent()
    sources = cache / "sources"
    if not sources.exists():
        shutil.copytree(build.SOURCES, sources)
        header = sources / "session.h"
        text = header.read_text()
        for right, wrong in CPP_FAULTS.values():
            assert right in text, f"{right} is not in session.h"
            text = text.replace(right, wrong, 1)
        header.write_text(text)
    build.SOURCES = sources
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if request["do"] == "load":
            launch = libtorch.prepare(Bundle(Path(request["bundle"])), "", cache)
            break
        print('{"ok": true}', flush=True)
    with subprocess.Popen(launch.command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        while line:
            process.stdin.write(line)
            process.stdin.flush()
            line = sys.stdin.buffer.readline()
        process.stdin.close()


def main(name: str, cache: Path) -> None:
    """Serve the level with the fault."""
    level, _, fault = name.partition("-")
    if level == "libtorch":
        serve_libtorch(name, cache)
    else:
        run(onednn_program(fault, cache))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
