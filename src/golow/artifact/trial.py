"""Loads an artifact in a separate process, before it is handed over: what it needs is compiled
there, and its check must pass.

    python -m golow.artifact.trial FILE CACHE
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from golow.records.errors import GolowError
from golow.workload.import_path import module_command, python_environment

LIMIT = 900.0
"""Seconds: kernels are compiled."""


def try_artifact(file: Path, cache: Path) -> None:
    """Load and check it. Raises `GolowError` if it does not pass."""
    command = module_command("golow.artifact.trial", str(file), str(cache))
    answer = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=LIMIT, env=python_environment(),
    )  # fmt: skip
    if answer.returncode:
        said = (answer.stdout + answer.stderr).strip() or f"status {answer.returncode}"
        raise GolowError(f"the written file does not run in a new process:\n{said}")


def main() -> int:
    """Return 0 if the artifact passes its check."""
    from golow.artifact.loading import load_compiled

    try:
        with load_compiled(sys.argv[1], cache=sys.argv[2]) as loaded:
            found = loaded.check()
    except GolowError as error:
        print(error, file=sys.stderr)
        return 2
    print(found)
    return 0 if found.matches else 1


if __name__ == "__main__":
    sys.exit(main())
