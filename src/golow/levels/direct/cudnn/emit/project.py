"""The plans of a network as a CMake project that needs neither golow nor Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.emit.kernels import Compile, Kernels
from golow.levels.direct.cudnn.emit.library_calls import LibraryCalls
from golow.levels.direct.cudnn.emit.plan_source import (
    Parts,
    Written,
    plan_sources,
    require_emitted,
)
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.network import Network
from golow.levels.direct.emit.project import SOURCES as SHARED
from golow.levels.direct.emit.project import (
    OwnFiles,
    files_table,
    filled,
    shared_texts,
    shared_words,
    supporting,
    write_files,
)
from golow.levels.direct.emit.spelling import listed, text

SOURCES = Path(__file__).parent / "sources"
SUPPORT = tuple(
    f"{name}.{kind}"
    for name in (
        "device",
        "filling",
        "graph",
        "libraries",
        "loading",
        "network",
        "plan",
        "target",
    )
    for kind in ("cpp", "h")
)
STALE = ("plan_*.cpp", "evaluation_*.cpp", "kernels/*.cu")
FILES = OwnFiles(
    generated=(
        ("libraries.h", "the chosen operations of cuDNN and cuBLASLt"),
        ("kernels.h, kernels/", "the generated kernels, with their sources"),
    ),
    support="memory, launches",
    constants=", compiled kernels and plans of cuDNN",
    further=(("wheels.py", "where NVIDIA's wheels are"),),
)


class Machine(NamedTuple):
    """The GPU that plans are written for: its name, compute capability and multiprocessors; the
    versions of the libraries, as they encode them; and what compiles kernels for it."""

    gpu: str
    capability: tuple[int, int]
    multiprocessors: int
    cudnn: int
    cublas: int
    compiled: Compile


def write_project(network: Network[Written], machine: Machine, folder: Path) -> list[Path]:
    """Write the project and return its files. Raises `GolowError`, before anything is written, for
    a plan with a step that has no form in C++, and for a folder that holds something else."""
    texts, constants = _texts(network, machine)
    tensors = {"constants.safetensors": constants}
    return write_files(network, folder, texts, tensors, STALE)


def project_texts(network: Network[Written], machine: Machine) -> dict[str, str]:
    """The texts of the project by their files. Raises `GolowError` as `write_project`."""
    return _texts(network, machine)[0]


def _texts(
    network: Network[Written], machine: Machine
) -> tuple[dict[str, str], Mapping[str, np.ndarray]]:
    """The texts of the project by their files, and its constants."""
    for sized in network.plans.values():
        require_emitted(network.title, sized.plan.built)
    constants = Constants()
    parts = Parts(Kernels(), LibraryCalls(constants), constants, {}, {})
    plans = plan_sources(network, parts)
    generated = parts.kernels.files(constants, machine.compiled)
    words = _words(network, sorted(plans), parts, machine)
    texts = own_texts("README.md.in", words, parts)
    texts |= shared_texts(network, words) | plans | generated | supporting(SOURCES, SUPPORT)
    return texts, constants.arrays


def _words(
    network: Network[Written], plans: list[str], parts: Parts, machine: Machine
) -> dict[str, str]:
    """Replacements of the words in templates."""
    arena = max(sized.plan.built.plan.sizes["arena"] for sized in network.plans.values())
    words = shared_words(network, plans, parts.weights, arena)
    return words | {
        **library_words(parts, machine, SUPPORT),
        "@memory@": ", in the host's memory",
        "@further@": filled(SOURCES / "enqueue.h.in", words),
        "@definitions@": filled(SOURCES / "enqueue.cpp.in", words),
        "@files@": files_table(network, plans, FILES),
    }


def own_texts(readme: str, words: Mapping[str, str], parts: Parts) -> dict[str, str]:
    """The texts of every project of this level, by their files."""
    return {
        "README.md": filled(SOURCES / readme, words),
        "CMakeLists.txt": filled(SOURCES / "CMakeLists.txt.in", words),
        "constants.cpp": filled(SHARED / "constants.cpp", {}),
        "wheels.py": filled(SOURCES / "wheels.py.in", {}),
        "libraries.h": parts.libraries.header(),
    }


def library_words(parts: Parts, machine: Machine, support: Sequence[str]) -> dict[str, str]:
    """The words of every project of this level. support: the level's own sources."""
    libraries = parts.libraries
    major, minor = machine.capability
    target = (
        text(machine.gpu), major, minor, machine.multiprocessors,
        machine.cudnn if libraries.cudnn else 0, machine.cublas if libraries.cublas else 0,
    )  # fmt: skip
    return {
        "@device@": f"a GPU ({machine.gpu})",
        "@calls@": "",
        "@LIBRARY@": "GPU",
        "@library@": "the GPU, its driver or a library fails, or is not the one that the program "
        "was written for",
        "@support_files@": " ".join(f"support/{name}" for name in support if name.endswith(".cpp")),
        "@facts@": f"    {listed(target)},",
        "@gpu@": machine.gpu,
        "@capability@": f"{major}.{minor}",
        "@cudnn@": _dotted(machine.cudnn, 10000, 100),
        "@cublas@": _dotted(machine.cublas, 10000, 100),
    }


def _dotted(version: int, major: int, minor: int) -> str:
    return f"{version // major}.{version % major // minor}.{version % minor}"
