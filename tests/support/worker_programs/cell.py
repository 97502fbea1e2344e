"""The process of a cell that measures nothing: it sleeps, and brings a comparison made before.

``CELL_SECONDS`` says how long it sleeps, ``CELL_COMPARISON`` which folder is the comparison,
``CELL_LONGER`` which one if the race has more than `USUAL` seconds, and ``CELL_FAULTS`` (JSON) by
batch size what goes wrong instead, in those cells alone if it ends with "when refined".
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

WORKERS: list[subprocess.Popen[bytes]] = []
STARTING = threading.Lock()  # held until a worker that has begun is in the list
USUAL = 10.0  # seconds of a study's races
DEAF: list[bool] = []  # whether it does not hear that it should end


def main() -> None:
    folder = Path(sys.argv[1])
    asked = threading.Event()
    threading.Thread(target=listen, args=(asked,), daemon=True).start()
    asked.wait()
    cell = json.loads((folder / "request.json").read_text())
    fault = json.loads(os.environ.get("CELL_FAULTS", "{}")).get(str(cell["batch"]), "")
    print("measuring", flush=True)
    is_longer = cell["seconds"] > USUAL
    if is_longer and "CELL_LONGER" in os.environ:
        os.environ["CELL_COMPARISON"] = os.environ["CELL_LONGER"]
    if fault.endswith(" when refined"):
        fault = fault.removesuffix(" when refined") if is_longer else ""
    if "with a worker" in fault:  # one that does not notice that it is alone
        with STARTING:
            WORKERS.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
    if fault == "hang with a worker":
        time.sleep(1000)
    if fault == "silent hang":
        os.close(1)
        time.sleep(1000)
    if fault == "deaf":
        DEAF.append(True)
        time.sleep(1000)
    if fault == "late":
        finish(folder, {"comparison": brought(folder)})
        time.sleep(1000)
    if fault == "a second late":
        time.sleep(1)
    if fault == "crash":
        print("a last word", file=sys.stderr, flush=True)
        os.abort()
    if fault == "ended":
        sys.exit(3)
    if fault in ("killed", "killed with a worker"):
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "full disk":
        sys.exit(28)
    if fault == "refused":
        return finish(folder, {"reason": "the model does not take that"})
    if fault == "out of memory":
        brought(folder)  # half of one
        levels = {"out_of_memory": cell["levels"]}
        return finish(folder, {"reason": "out of memory: there was none", **levels})
    time.sleep(float(os.environ.get("CELL_SECONDS", "0.01")))
    needed = 1000 * cell["batch"] * (cell["resolution"] or 1) ** 2
    return finish(folder, {"comparison": brought(folder), "needed_bytes": needed})


def brought(folder: Path) -> str:
    made = Path(os.environ["CELL_COMPARISON"])
    shutil.copytree(made, folder / made.name)
    return made.name


def finish(folder: Path, outcome: dict[str, object]) -> None:
    (folder / "outcome.json").write_text(json.dumps(outcome))


def listen(asked: threading.Event) -> None:
    while os.read(0, 1):
        asked.set()
    while DEAF:
        time.sleep(1)
    with STARTING:
        for worker in WORKERS:
            worker.kill()
        os._exit(1)


if __name__ == "__main__":
    main()
