"""A training step as a CMake project that needs neither golow nor Python."""

from __future__ import annotations

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
    FILES,
    SOURCES,
    STALE,
    SUPPORT,
    Machine,
    library_words,
    own_texts,
)
from golow.levels.direct.cudnn.emit.training_source import StateMemory, TrainingSource
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.project import (
    EVALUATION,
    PLAN,
    files_table,
    filled,
    supporting,
    training_texts,
    training_words,
    write_files,
)
from golow.levels.direct.emit.training import TrainingNetwork

TRAINING = (*SUPPORT, "training.cpp", "training.h")
ANEW = "\n * Random numbers begin again with the seed."


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
    texts = own_texts("README.train.md.in", words, parts)
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
        "@files@": files_table(network, plans, FILES),
    }
