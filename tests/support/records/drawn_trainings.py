"""Records of trainings made by hand and drawn by Hypothesis, for what is shown of them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from hypothesis import strategies as st

from golow.programs.training.training_record import (
    Augmentation,
    CurveVerdict,
    DatasetFacts,
    Epoch,
    Schedule,
    Training,
    TrainingPlan,
    TrainingRun,
)
from golow.records.comparison import Check, Environment, Quantity
from golow.records.workload import ModelSource, Optimizer, TensorType, Workload

CLASSES = ("circle", "triangle", "square")
ENVIRONMENT = Environment(
    cpu_model="AMD EPYC 9454",
    cpu_flags=("avx2",),
    cores=16,
    affinity=tuple(range(16)),
    memory_bytes=2**36,
    governor="",
    kernel="Linux 6.1",
    container_limits={},
    gpu=("NVIDIA H200",),
    driver="570.1",
    python="3.11.7",
    versions={"torch": "2.11.0", "golow": "0.1.0", "nvidia-cudnn-cu13": "9.19.0"},
    thread_settings={},
)
WORKLOAD = Workload(
    model="resnet50",
    source=ModelSource(kind="zoo", name="resnet50"),
    mode="train",
    batch=128,
    inputs=(TensorType(shape=(128, 1, 32, 32), dtype="float32"),),
    parameters=25_557_032,
)


def epoch(
    number: int,
    losses: Sequence[float] = (0.5, 0.25),
    accuracy: float | None = 0.9,
    seconds: float = 8.0,
    confusion: tuple[tuple[int, ...], ...] = ((90, 10, 0), (5, 95, 0), (3, 7, 90)),
) -> Epoch:
    return Epoch(
        epoch=number,
        losses=tuple(losses),
        train_seconds=seconds,
        train_samples=60_000,
        eval_seconds=None if accuracy is None else seconds / 16,
        eval_samples=0 if accuracy is None else 10_000,
        eval_loss=None if accuracy is None else 1 - accuracy,
        eval_accuracy=accuracy,
        confusion=() if accuracy is None else confusion,
        checksum=1234,
        learning_rate=0.001 / number,
        device=(
            Quantity(name="utilization", unit="", value=0.9),
            Quantity(name="energy", unit="J", value=1000.0 * number),
        ),
        memory=(Quantity(name="resident", unit="B", value=2.0**30 + number),),
    )


def run(
    level: str,
    epochs: Sequence[Epoch] = (),
    seed: int = 0,
    initialisation: str = "default",
    failure: str = "",
) -> TrainingRun:
    return TrainingRun(
        level=level,
        initialisation=initialisation,
        seed=seed,
        workload=WORKLOAD,
        check=Check(verdict="match"),
        epochs=tuple(epochs),
        life=(Quantity(name="ready", unit="s", value=1.5),),
        failure=failure,
    )


def training(
    runs: Sequence[TrainingRun],
    dataset: str = "mnist",
    verdicts: Sequence[CurveVerdict] = (),
    source: str = "MNIST, IDX files, resized 28x28 -> 32x32, bilinear",
    classes: tuple[str, ...] = CLASSES,
) -> Training:
    """The levels, initialisations and seeds of the plan are those of the runs."""
    plan = TrainingPlan(
        format_version=1,
        id="2026-11-20-1",
        created="2026-11-20T18:00:00+00:00",
        model="resnet50",
        dataset=DatasetFacts(
            name=dataset,
            classes=classes,
            shape=(1, 32, 32),
            train_samples=60_000,
            test_samples=10_000,
            train_checksum="00000000",
            test_checksum="00000001",
            source=source,
        ),
        levels=tuple(dict.fromkeys(run.level for run in runs)),
        initialisations=tuple(dict.fromkeys(run.initialisation for run in runs)),
        seeds=tuple(dict.fromkeys(run.seed for run in runs)),
        epochs=max((len(run.epochs) for run in runs), default=0),
        batch=128,
        optimizer=Optimizer(),
        schedule=Schedule(),
        augmentation=Augmentation(flip=True, padding=4),
        precision="default",
        device="cuda",
        threads=16,
        environment=ENVIRONMENT,
    )
    return Training(plan=plan, runs=tuple(runs), verdicts=tuple(verdicts))


def paper_like(
    levels: Sequence[str] = ("eager", "torchscript", "libtorch", "cudnn"),
    initialisations: Sequence[str] = ("default",),
    seeds: int = 3,
    epochs: int = 10,
    steps: int = 469,
    dataset: str = "mnist",
) -> Training:
    """Curves as they come out of a real training: a fast rise, noise, levels of unlike speed."""
    draw = random.Random(0)  # noqa: S311
    runs = []
    for initialisation in initialisations:
        for seed in range(seeds):
            for place, level in enumerate(levels):
                trained = []
                for number in range(1, epochs + 1):
                    accuracy = 0.987 - 0.09 * math.exp(-0.6 * number) + draw.gauss(0, 0.001)
                    losses = [
                        2.3 * math.exp(-1.2 * (number - 1 + step / steps) + draw.gauss(0, 0.2))
                        for step in range(steps)
                    ]
                    trained.append(epoch(number, losses, accuracy, 8.0 / (1 + place)))
                runs.append(run(level, trained, seed, initialisation))
    return training(runs, dataset)


TWO_SEEDS = training(
    [
        run("eager", [epoch(1, (4, 2), 0.5, 10), epoch(2, (2, 1), 0.7, 20), epoch(3, (1, 1), 0.8)]),
        run("eager", [epoch(1, (4, 4), 0.6, 20), epoch(2, (1, 1), 0.9, 20)], seed=1),
    ],
    "folder:pictures",
)


# ---------------------------------------------------------------- drawn

LEVELS = (
    "eager",
    "eager:channels_last",
    "compile:freezing-cudagraphs",
    "cudagraph",
    "cudnn:autotune",
    "a_user's_$own$_level",
)
losses = st.floats(1e-6, 1e6) | st.sampled_from((math.nan, math.inf, 0.0))
accuracies = st.none() | st.floats(0, 1)


@st.composite
def trainings(draw: st.DrawFn, least_steps: int = 0) -> Training:
    """Levels, initialisations, seeds and epochs in unlike numbers; losses that are not finite,
    epochs without evaluation, runs that failed before their first epoch or later.

    least_steps: of an epoch.
    """
    runs = []
    levels = draw(st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4, unique=True))
    initialisations = draw(st.integers(1, 4))
    for level in levels:
        for initialisation in range(initialisations):
            for seed in range(draw(st.integers(1, 2))):
                count = draw(st.integers(0, 4))
                epochs = [
                    epoch(
                        number,
                        draw(st.lists(losses, min_size=least_steps, max_size=5).map(tuple)),
                        draw(accuracies),
                        draw(st.sampled_from((0.0, 1e-4, 3.0, 7200.0))),
                        draw(st.sampled_from(((), ((3, 1, 0), (0, 0, 0), (1, 1, 12345))))),
                    )
                    for number in range(1, count + 1)
                ]
                failure = draw(st.sampled_from(("", "the worker was killed")))
                runs.append(run(level, epochs, seed, f"kind-{initialisation}", failure))
    return training(runs, draw(st.sampled_from(("mnist", "stl10", "folder:pictures"))))
