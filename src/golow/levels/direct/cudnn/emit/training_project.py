"""A training step as a CMake project that needs neither golow nor Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from golow.levels.direct.cudnn.emit.kernels import Kernels
from golow.levels.direct.cudnn.emit.library_calls import LibraryCalls
from golow.levels.direct.cudnn.emit.plan_source import (
    Parts,
    Written,
    plan_sources,
    require_emitted,
)
from golow.levels.direct.cudnn.emit.project import (
    SOURCES,
    STALE,
    SUPPORT,
    Machine,
    library_words,
)
from golow.levels.direct.cudnn.emit.training_source import StateMemory, TrainingSource
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.project import (
    EVALUATION,
    PLAN,
    filled,
    supporting,
    table,
    training_texts,
    training_words,
    write_files,
)
from golow.levels.direct.emit.project import SOURCES as SHARED
from golow.levels.direct.emit.training import TrainingNetwork

TRAINING = (*SUPPORT, "training.cpp", "training.h")
ANEW = " Random numbers\n * begin again with the seed."


def write_training(
    network: TrainingNetwork[Written], memory: StateMemory, machine: Machine, folder: Path
) -> list[Path]:
    """Write the project and return its files. memory: of what training changes. Raises
    `GolowError`, before anything is written, for a plan with a step that has no form in C++, and
    for a folder that holds something else."""
    evaluation, constants = network.evaluation, Constants()
    for sized in (*network.plans.values(), *evaluation.plans.values()):
        require_emitted(network.title, sized.plan.built)
    parts = Parts(Kernels(), LibraryCalls(constants), constants, {}, {})
    plans = {
        f"{PLAN}_{batch}.cpp": TrainingSource(
            sized.plan, len(network.inputs), memory, parts
        ).source(network.shown, batch)
        for batch, sized in network.plans.items()
    }
    evaluating = parts._replace(keys={}, weights={})
    plans |= plan_sources(evaluation, evaluating, EVALUATION)
    generated = parts.kernels.files(constants, machine.compiled)
    words = _words(network, sorted(plans), evaluating, machine)
    texts = {
        "README.md": filled(SOURCES / "README.train.md.in", words),
        "CMakeLists.txt": filled(SOURCES / "CMakeLists.txt.in", words),
        "constants.cpp": filled(SHARED / "constants.cpp", {}),
        "wheels.py": filled(SOURCES / "wheels.py.in", {}),
        "libraries.h": parts.libraries.header(),
    }
    texts |= training_texts(network, words) | plans | generated | supporting(SOURCES, TRAINING)
    tensors = {"constants.safetensors": constants.arrays}
    return write_files(network, folder, texts, tensors, STALE)


def _words(
    network: TrainingNetwork[Written], plans: list[str], parts: Parts, machine: Machine
) -> dict[str, str]:
    arena = max(sized.plan.built.plan.sizes["arena"] for sized in network.plans.values())
    memory = arena + sum(held.bytes for held in network.state)
    words = training_words(network, plans, parts.weights, memory)
    return words | {
        **library_words(parts, machine, TRAINING),
        "@memory@": ", in the host's memory",
        "@anew@": ANEW,
        "@further@": filled(SOURCES / "enqueue_step.h.in", words),
        "@definitions@": filled(SOURCES / "enqueue_step.cpp.in", words),
        "@files@": table(_files(network.name, plans)),
    }


def _files(name: str, plans: list[str]) -> Iterator[tuple[str, str]]:
    yield f"{name}.h", "the interface, in C"
    yield "network.cpp", "its functions, and the names and shapes of inputs, targets and state"
    for plan in plans:
        yield plan, "the place of each value, and every step with its layer"
    yield "libraries.h", "the chosen operations of cuDNN and cuBLASLt"
    yield "kernels.h, kernels/", "the generated kernels, with their sources"
    yield "support/", "memory, launches, state and files; the same for every network"
    yield "main.cpp", "the program"
    yield "wheels.py", "where NVIDIA's wheels are"
    yield "weights.safetensors", "the state dict that the training begins with"
    yield (
        "constants.safetensors",
        "constants that are not weights, compiled kernels and plans of cuDNN; compiled into the "
        "library",
    )
    yield (
        "example.safetensors, expected.safetensors",
        "batches; the losses and the state that golow's plans make of them, and the outputs then",
    )
