"""How long does a process without PyTorch take until an artifact answers?

    python benchmarks/loading_an_artifact.py --model resnet50 --batch 1

Medians over new processes, in milliseconds: importing what loads it, reading the weights (their
digest, and a copy of them), loading beyond that, and the first call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

PROGRAM = """
import json, sys, time
start = time.perf_counter()
import golow
golow.load_compiled
imported = time.perf_counter()
from golow.artifact.container import Container
bytes(Container(__import__("pathlib").Path(sys.argv[1])).mapped("weights.safetensors"))
read = time.perf_counter()
f = golow.load_compiled(sys.argv[1])
loaded = time.perf_counter()
f(*f.example())
called = time.perf_counter()
assert "torch" not in sys.modules
beyond = loaded - read - (read - imported)
print(json.dumps([imported - start, read - imported, beyond, called - loaded]))
"""
COLUMNS = ("imports", "reading weights", "loading beyond", "first call")


def main() -> int:
    """Build the artifact and load it in some processes."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--processes", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.golow"
        build = [sys.executable, "-m", "golow", "build", given.model, "--batch", given.batch]
        subprocess.run([*build, "--out", str(file)], check=True)
        rows = [
            json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM, str(file)]))
            for _ in range(given.processes)
        ]
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    columns = zip(*rows, strict=True)
    print(f"| {' | '.join(f'{1e3 * median(column):.0f} ms' for column in columns)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
