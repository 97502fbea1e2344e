"""The packages that models bring along: do they import with this torch?

torchvision and others contain operators compiled for one version of torch. With another one they
raise when they are imported, and so does every model that uses them: all of transformers' where a
wrong torchvision is installed with it.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

SECONDS = 120.0  # jax and transformers may take half a minute on a slow disk

TORCHVISION_AHEAD = 15
"""torch 2.N and torchvision 0.(N + 15) are built together: 2.11 and 0.26, 2.13 and 0.28
(https://github.com/pytorch/vision#installation)."""


class Companion(NamedTuple):
    """A package, its version, and the last line of what its import raised; empty if it imports, and
    the version is, where it is not installed. fix: the command that makes it import."""

    name: str
    version: str = ""
    fault: str = ""
    fix: str = ""


# Modules imported of each package: those that models use. transformers itself loads nothing before
# that.
IMPORTS = {
    "torchvision": "import torch, torchvision",
    "transformers": "import torch; from transformers import AutoImageProcessor, PreTrainedModel",
    "timm": "import torch, timm",
    "jax": "import torch, jax",
}


def companions() -> list[Companion]:
    """Each package in a separate process: a wrong one may end it."""
    return [companion(name, program) for name, program in IMPORTS.items()]


def companion(name: str, program: str) -> Companion:
    """The package as this Python finds it; program: what imports it."""
    if find_spec(name) is None:
        return Companion(name)
    try:
        installed = version(name)
    except PackageNotFoundError:
        installed = "unknown"
    try:
        command = [sys.executable, "-P", "-c", program]  # not the current folder's modules
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Companion(name, installed, f"its import takes more than {SECONDS:.0f} s")
    if done.returncode == 0:
        return Companion(name, installed)
    said = done.stderr.strip().splitlines()
    fault = said[-1] if said else f"its import ends Python with status {done.returncode}"
    return Companion(name, installed, fault, _fix(name, done.stderr))


def _fix(name: str, said: str) -> str:
    """The command; where torchvision is at fault, it is torchvision's whichever was imported."""
    if name != "torchvision" and "torchvision" not in said:
        return f"pip install --upgrade {name}"
    torch = version("torch")
    source = f"  # from the index that torch {torch} came from" if "+" in torch else ""
    return f"pip install 'torchvision==0.{int(torch.split('.')[1]) + TORCHVISION_AHEAD}.*'{source}"
