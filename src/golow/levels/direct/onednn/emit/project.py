"""The plans of a network as a CMake project that needs neither golow nor Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.network import Network
from golow.levels.direct.emit.project import (
    SOURCES as SHARED,
)
from golow.levels.direct.emit.project import (
    OwnFiles,
    files_table,
    filled,
    shared_texts,
    shared_words,
    supporting,
    write_files,
)
from golow.levels.direct.onednn.bindings.library import version
from golow.levels.direct.onednn.emit.kernels import KERNEL_FLAGS, Kernels
from golow.levels.direct.onednn.emit.plan_source import Keys, plan_sources, require_emitted
from golow.levels.direct.onednn.run.called_plan import CalledPlan

SOURCES = Path(__file__).parent / "sources"
SUPPORT = ("bound.cpp", "bound.h", "memory.cpp", "memory.h", "plan.cpp", "plan.h")
INFERENCE = ("network.cpp", "network.h")
STALE = ("plan_*.cpp", "evaluation_*.cpp", "kernels_*.cpp")
FILES = OwnFiles(
    generated=(("kernels.cpp", "generated kernels for operations without a oneDNN primitive"),),
    support="memory, layouts, primitives",
)


def write_project(network: Network[CalledPlan], folder: Path) -> list[Path]:
    """Write the project and return its files. Raises `GolowError`, before anything is written, for
    a plan with a step that has no form in C++, and for a folder that holds something else."""
    texts, constants = _texts(network)
    tensors = {"constants.safetensors": constants}
    return write_files(network, folder, texts, tensors, STALE)


def project_texts(network: Network[CalledPlan]) -> dict[str, str]:
    """The texts of the project by their files. Raises `GolowError` as `write_project`."""
    return _texts(network)[0]


def _texts(network: Network[CalledPlan]) -> tuple[dict[str, str], Mapping[str, np.ndarray]]:
    """The texts of the project by their files, and its constants."""
    for sized in network.plans.values():
        require_emitted(network.title, sized.plan.built)
    kernels = Kernels(code for sized in network.plans.values() for code in sized.plan.built.codes)
    constants, keys = Constants(), Keys()
    plans = plan_sources(network, (kernels, constants, keys))
    generated = kernels.files()
    words = _words(network, sorted(plans), [n for n in generated if n.endswith(".cpp")])
    texts = {
        "README.md": filled(SOURCES / "README.md.in", words),
        "CMakeLists.txt": filled(SOURCES / "CMakeLists.txt.in", words),
        "constants.cpp": filled(SHARED / "constants.cpp", {}),
    }
    support = supporting(SOURCES, (*SUPPORT, *INFERENCE))
    texts |= shared_texts(network, words) | plans | generated | support
    return texts, constants.arrays


def _words(network: Network[CalledPlan], plans: list[str], kernels: list[str]) -> dict[str, str]:
    """Replacements of the words in templates."""
    built = [sized.plan.built for sized in network.plans.values()]
    arena = max(one.plan.sizes["arena"] for one in built)
    return shared_words(network, plans, weights_read(network), arena) | {
        **library_words(network.threads, kernels, (*SUPPORT, *INFERENCE)),
        "@files@": files_table(network, plans, FILES),
    }


def weights_read(network: Network[CalledPlan]) -> list[str]:
    """Names of the weights that plans read."""
    keys = (key for sized in network.plans.values() for key in sized.plan.built.inputs)
    return list(dict.fromkeys(target for kind, target in keys if kind in ("parameter", "buffer")))


def library_words(threads: int, kernels: Sequence[str], support: Sequence[str]) -> dict[str, str]:
    """The words of every project of this level. kernels: their sources; support: the level's own
    sources."""
    compiled = (f"support/{name}" for name in support if name.endswith(".cpp"))
    return {
        "@device@": "a CPU",
        "@memory@": "",
        "@further@": "",
        "@definitions@": "",
        "@anew@": "",
        "@calls@": f" Every call computes with {threads} OpenMP threads.",
        "@LIBRARY@": "ONEDNN",
        "@library@": "oneDNN, or the CPU, is not the one that the program was written for",
        "@facts@": f"    {threads},",
        "@threads@": str(threads),
        "@support_files@": " ".join(compiled),
        "@kernel_files@": " ".join(kernels),
        "@kernel_flags@": ";".join(KERNEL_FLAGS),
        "@onednn@": version(),
    }
