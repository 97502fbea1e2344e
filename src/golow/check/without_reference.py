"""The error of a comparison whose float64 reference or eager run failed."""

from __future__ import annotations

import re

from golow.records.errors import GolowError, WorkerFailure

# PyTorch's words where a layer of the model computes in half precision and the reference does not.
HALF_BESIDE_DOUBLE = re.compile(r"(?=.*\b(?:Half|BFloat16)\b)(?=.*\b(?:Double|double)\b)")

SMALLER = "try a smaller batch or resolution."


def without_reference(failure: WorkerFailure) -> GolowError:
    """The error for a failure of either worker."""
    # A study shows the first line; it should be the same for all cells out of memory.
    if failure.kind == "out of memory":
        return GolowError(
            "eager and its float64 reference do not fit into memory, so no level can be checked\n"
            f"{failure.message}\n{failure.log}",
            SMALLER,
        )
    if HALF_BESIDE_DOUBLE.search(failure.message):
        return GolowError(
            "the model casts to half precision in its forward pass, which golow's float64 "
            f"reference cannot follow, so no level can be checked: {failure.message}",
            "leave the casts out and call the module's .float(); on a GPU, --precision chooses "
            "half precision.",
        )
    return GolowError(
        "eager or its float64 reference cannot run this workload, so no level can be checked: "
        f"{failure.message}\n{failure.log}".rstrip(),
        _hint(failure),
    )


def _hint(failure: WorkerFailure) -> str:
    """Advice about a worker that ended so; empty where its message is all that is known."""
    if failure.kind == "hung":
        return SMALLER
    if "SIGKILL" in failure.message:
        return f"golow did not end it: run the command again; if memory is short, {SMALLER}"
    if failure.kind in ("died", "not started"):
        return "`golow doctor` shows what is installed and what is missing."
    return ""
