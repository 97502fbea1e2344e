"""A training step as a CMake project that needs neither golow nor Python."""

from __future__ import annotations

from pathlib import Path

from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.project import (
    EVALUATION,
    files_table,
    filled,
    supporting,
    training_texts,
    training_words,
    write_files,
)
from golow.levels.direct.emit.project import SOURCES as SHARED
from golow.levels.direct.emit.training import TrainingNetwork
from golow.levels.direct.onednn.build.inputs import Key
from golow.levels.direct.onednn.emit.kernels import Kernels
from golow.levels.direct.onednn.emit.plan_source import Keys, plan_sources, require_emitted
from golow.levels.direct.onednn.emit.project import (
    FILES,
    INFERENCE,
    SOURCES,
    STALE,
    SUPPORT,
    library_words,
    weights_read,
)
from golow.levels.direct.onednn.emit.training_source import TrainingSource
from golow.levels.direct.onednn.steps.built_plan import Built

TRAINING = ("training.cpp", "training.h")


def write_training(
    network: TrainingNetwork[Built], numbers: dict[Key, int], folder: Path
) -> list[Path]:
    """Write the project and return its files. numbers: of what training changes, in the order of
    the network's state. Raises `GolowError`, before anything is written, for a plan with a step
    that has no form in C++, and for a folder that holds something else."""
    built = [sized.plan for sized in network.plans.values()]
    evaluation = network.evaluation
    inferring = [sized.plan.built for sized in evaluation.plans.values()]
    for one in (*built, *inferring):
        require_emitted(network.title, one)
    parts = Kernels(code for one in (*built, *inferring) for code in one.codes), Constants(), Keys()
    kernels, constants, _ = parts
    plans = {
        f"plan_{batch}.cpp": TrainingSource(
            batch, sized, len(network.inputs), numbers, parts
        ).source(network.shown)
        for batch, sized in network.plans.items()
    }
    plans |= plan_sources(evaluation, parts, EVALUATION)
    generated = kernels.files()
    arena = max(one.plan.sizes["arena"] for one in built)
    memory = arena + sum(held.bytes for held in network.state)
    support = (*SUPPORT, *INFERENCE, *TRAINING)
    words = training_words(network, sorted(plans), weights_read(evaluation), memory) | {
        **library_words(network.threads, [n for n in generated if n.endswith(".cpp")], support),
        "@files@": files_table(network, sorted(plans), FILES),
    }
    texts = {
        "README.md": filled(SOURCES / "README.train.md.in", words),
        "CMakeLists.txt": filled(SOURCES / "CMakeLists.txt.in", words),
        "constants.cpp": filled(SHARED / "constants.cpp", {}),
    }
    texts |= training_texts(network, words) | plans | generated | supporting(SOURCES, support)
    tensors = {"constants.safetensors": constants.arrays}
    return write_files(network, folder, texts, tensors, STALE)
