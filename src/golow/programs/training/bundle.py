"""Parts that all levels of a training run share: two bundles, and the initial state of each start.

One bundle is for training, one for inference; both have the weights of the first start. The other
starts are states of the same workload, so nothing is built twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from golow import models
from golow.check.moved_bundle import moved_weights, working_rounding
from golow.lower.capture.shared_tensors import first_names
from golow.programs.training.data import TrainingData
from golow.programs.training.training_record import DatasetFacts, TrainingPlan
from golow.records.errors import GolowError
from golow.records.workload import Mode, TensorType, Workload
from golow.worker.feed import last_batch
from golow.workload.batch import Batch
from golow.workload.bundle import write_bundle, write_last
from golow.workload.graph_capture import write_graph
from golow.workload.inputs import BATCHES
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from golow.workload.trial import MisfitError
from golow.workload.weights import fresh_module

OWN = "own"  # the initialisation by the model's constructor


class Start(NamedTuple):
    """Start of a run: the workload, which describes its weights, and the state. first: maps
    every name in the state to the first name of the same tensor."""

    workload: Workload
    state: Path
    first: Mapping[str, str]


class TrainingBundles:
    """Both bundles, written to the folder. notes: what a reader of the record must know."""

    def __init__(
        self, plan: TrainingPlan, model: str | nn.Module, data: TrainingData, folder: Path
    ) -> None:
        """Raises `GolowError` for a model that does not fit these images and classes, and for a
        batch size that leaves a batch of one sample to a batch norm."""
        self._plan, self._model, self._data, self._folder = plan, model, data, folder
        prepared = self._prepared("train")
        _require_last_batch(prepared.module, plan)
        self.train, prepared = write_bundle(prepared, folder / "train")
        notes = write_graph(prepared, self.train)
        if plan.last_batch:
            smaller = _cut(prepared, plan.last_batch)
            notes += write_graph(smaller, write_last(smaller, self.train))
        self.workload, self._module = prepared.workload, prepared.module
        inferring = self._prepared("infer")
        self.infer, inferring = write_bundle(inferring, folder / "infer")
        notes += write_graph(inferring, self.infer)
        self.notes = tuple(dict.fromkeys(notes))
        self._starts: dict[tuple[str, int], Start] = {}

    def start(self, initialisation: str, seed: int) -> Start:
        """The start of the runs with that initialisation and seed; made once for all levels."""
        if (initialisation, seed) not in self._starts:
            self._starts[initialisation, seed] = self._start(initialisation, seed)
        return self._starts[initialisation, seed]

    def moved(self, initialisation: str, seed: int) -> Path:
        """The state of that start, perturbed by a few roundings of the working precision."""
        _, weights = self._weights(initialisation, seed)
        working, generator = working_rounding(self.train), torch.Generator().manual_seed(0)
        return self._state("moved", moved_weights(weights, self.workload, working, generator))

    def _start(self, initialisation: str, seed: int) -> Start:
        how, weights = self._weights(initialisation, seed)
        digest = hashlib.sha256(self.workload.digest.encode())
        for tensor in weights.values():
            digest.update(tensor.numpy().tobytes())
        workload = msgspec.structs.replace(
            self.workload, initialisation=how, seed=seed, digest=digest.hexdigest()[:16]
        )
        state = self._state(f"start-{initialisation}-{seed}", weights)
        return Start(workload, state, first_names(self._module))

    def _weights(self, initialisation: str, seed: int) -> tuple[str, dict[str, Tensor]]:
        module, how = fresh_module(
            self._model, self.workload.source, None, _named(initialisation), seed
        )
        return how, module.state_dict()

    def _state(self, name: str, weights: Mapping[str, Tensor]) -> Path:
        """Write a state in the format of the protocol's ``save``, without momentum."""
        parameters = {name for name, _ in self._module.named_parameters(remove_duplicate=False)}
        file = self._folder / f"{name}.safetensors"
        state = {
            f"{'parameter' if name in parameters else 'buffer'}/{name}": tensor.clone()
            for name, tensor in weights.items()
        }
        save_file(state, file)
        return file

    def _prepared(self, mode: Mode) -> Prepared:
        """The workload on the first batches of the data set, which the check uses too."""
        plan, seed = self._plan, self._plan.seeds[0]
        ranks = plan.ranks if mode == "train" else 1
        batches = self._data.batches(BATCHES * ranks, plan.batch, seed)
        zoo = isinstance(self._model, str) and self._model in models.ZOO
        facts, images = plan.dataset, len(plan.dataset.shape) == 3
        request = Request(
            self._model,
            batches[0].inputs,
            targets=batches[0].targets if mode == "train" else None,
            mode=mode,
            channels=facts.shape[0] if zoo and images else None,
            classes=len(facts.classes) if zoo else None,
            resolution=facts.shape[1] if zoo and images else None,
            loss="cross_entropy" if images else "token_cross_entropy",
            initialisation=_named(plan.initialisations[0]),
            seed=seed,
            optimizer=plan.optimizer,
            threads=plan.threads,
            ranks=ranks,
            device=plan.device,
            precision=plan.precision,
            pretrained=plan.pretrained,
        )
        try:
            prepared = prepare(request)
        except MisfitError as error:
            raise GolowError(error.message, _how_to_fit(facts)) from error
        if draws := prepared.workload.draws:
            raise GolowError(
                f"{prepared.workload.model} draws random numbers ({draws} in a pass); golow train "
                "cannot give every level new ones for each batch of an epoch",
                "golow compare can compare it; golow train takes nn.Dropout and, in training, "
                "functional.dropout.",
            )
        if mode == "infer":
            batches = tuple(Batch(batch.inputs) for batch in batches)
        data = f"{facts.name}: {facts.source}"
        workload = msgspec.structs.replace(prepared.workload, data=data)
        return prepared._replace(workload=workload, batches=batches)


def _how_to_fit(facts: DatasetFacts) -> str:
    sample = "x".join(map(str, facts.shape))
    option = "--resolution" if len(facts.shape) == 3 else "--sequence"
    return (
        f"samples of {facts.name} are {sample}: name a model that takes them, or another data set; "
        f"{option} changes their size."
    )


def _named(initialisation: str) -> str | None:
    return None if initialisation == OWN else initialisation


def _cut(prepared: Prepared, rows: int) -> Prepared:
    """The workload with batches of this many rows."""
    batches = tuple(
        Batch(tuple(t[:rows] for t in batch.inputs), tuple(t[:rows] for t in batch.targets))
        for batch in prepared.batches
    )
    workload = msgspec.structs.replace(
        prepared.workload,
        batch=rows,
        inputs=tuple(_with_rows(kind, rows) for kind in prepared.workload.inputs),
        targets=tuple(_with_rows(kind, rows) for kind in prepared.workload.targets),
    )
    return prepared._replace(workload=workload, batches=batches)


def _with_rows(kind: TensorType, rows: int) -> TensorType:
    return msgspec.structs.replace(kind, shape=(rows, *kind.shape[1:]))


def _require_last_batch(module: nn.Module, plan: TrainingPlan) -> None:
    """Refuse batches of one sample: batch norm and PyTorch fail on one sample of one pixel."""
    samples, ranks = plan.dataset.train_samples, plan.ranks
    if not any(isinstance(layer, _BatchNorm) for layer in module.modules()):
        return
    if plan.last_batch == 1 or plan.batch == 1:
        sizes = range(plan.batch, 1, -1)
        fitting = (size for size in sizes if last_batch(samples, size, ranks) != 1)
        raise GolowError(
            f"with a batch of {plan.batch}{' per rank' if ranks > 1 else ''}, an epoch of "
            f"{samples} samples has a batch of one, which batch norm cannot train on",
            f"use --batch {next(fitting, samples // ranks)}.",
        )
