"""The workload: a model, its inputs, batch size, precision and mode; and the optimizer."""

from __future__ import annotations

from typing import Literal

import msgspec

from golow.records.quantization import QuantizedLayer
from golow.records.record import Record

Mode = Literal["infer", "train"]
LayerPhase = Literal["forward", "backward", "update"]
Device = Literal["cpu", "cuda"]
Precision = Literal["default", "ieee", "tf32", "bf16", "fp16"]
Phase = Literal["", "prefill", "decode"]


class ModelSource(Record, frozen=True, kw_only=True):
    """Where a worker finds the module.

    kind: ``zoo`` (name), ``file`` (path and attribute), ``import`` (dotted module and attribute),
    ``pickle`` (a live module that golow wrote into the bundle), ``program`` (a .pt2 file),
    ``huggingface`` (a class of transformers and its configuration) or ``timm`` (a name).
    keywords: the names by which the forward pass takes the inputs, where it takes them by name.
    settings: what else it is called with. configuration: of transformers, as JSON. pretrained:
    whether the weights are those that its publisher trained. quantized: the layers that are
    replaced by quantised ones.
    """

    kind: Literal["zoo", "file", "import", "pickle", "program", "huggingface", "timm"]
    name: str
    attribute: str = ""
    arguments: dict[str, int] = {}
    sha256: str = ""
    keywords: tuple[str, ...] = ()
    settings: dict[str, int] = {}
    configuration: str = ""
    pretrained: bool = False
    quantized: tuple[QuantizedLayer, ...] = ()


OptimizerName = Literal["sgd", "adam", "adamw", "rmsprop"]
OptimizerState = Literal["momentum", "square"]
# The kinds of what an optimizer keeps from step to step, of each parameter and as a whole.
KEPT = ("momentum", "square", "steps", "gradient_sum")

# Momentum and weight decay where the user gives none: of PyTorch, except SGD's momentum.
_DEFAULTS = {"sgd": (0.9, 0.0), "adam": (0.0, 0.0), "adamw": (0.0, 0.01), "rmsprop": (0.0, 0.0)}

_TITLES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}


class _Named(Record, frozen=True):
    """The one field that may be given by position."""

    name: OptimizerName = "sgd"


class Optimizer(_Named, frozen=True, kw_only=True):
    """An optimizer of torch.optim with its settings, as PyTorch defines it.

    momentum: for sgd (default 0.9) and rmsprop (default 0). weight_decay: default 0.01 for adamw,
    otherwise 0. nesterov: use Nesterov momentum, for sgd. betas: for adam and adamw. smoothing:
    ``alpha`` of rmsprop. epsilon: for all except sgd. clip: largest total norm of the gradients;
    larger gradients are scaled down to it before the step, as by torch.nn.utils.clip_grad_norm_.
    """

    learning_rate: float = 0.001
    momentum: float = None  # type: ignore[assignment]  # replaced below
    weight_decay: float = None  # type: ignore[assignment]
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    smoothing: float = 0.99
    epsilon: float = 1e-8
    clip: float | None = None

    def __post_init__(self) -> None:
        momentum, decay = _DEFAULTS.get(self.name, (0.0, 0.0))
        if self.momentum is None:
            msgspec.structs.force_setattr(self, "momentum", momentum)
        if self.weight_decay is None:
            msgspec.structs.force_setattr(self, "weight_decay", decay)

    @property
    def keeps(self) -> tuple[OptimizerState, ...]:
        """State for each parameter: running means of its gradients and of their squares."""
        if self.name in ("adam", "adamw"):
            return ("momentum", "square")
        squares: tuple[OptimizerState, ...] = ("square",) if self.name == "rmsprop" else ()
        return (*squares, "momentum") if self.momentum else squares

    @property
    def counts_steps(self) -> bool:
        """True if its update depends on the number of steps so far."""
        return self.name in ("adam", "adamw")

    def __str__(self) -> str:
        """Its name and its settings, except the learning rate: ``SGD, momentum 0.9``."""
        words = [_TITLES.get(self.name, self.name)]
        if self.name in ("sgd", "rmsprop"):
            kind = "Nesterov momentum" if self.nesterov else "momentum"
            words += [f"{kind} {self.momentum:g}"]
        else:
            words += [f"betas {' and '.join(f'{beta:g}' for beta in self.betas)}"]
        if self.name == "rmsprop":
            words += [f"smoothing {self.smoothing:g}"]
        words += [f"weight decay {self.weight_decay:g}"]
        if self.clip is not None:
            words += [f"gradients clipped to a norm of {self.clip:g}"]
        return ", ".join(words)


class TensorType(Record, frozen=True, kw_only=True):
    """Shape and dtype of one tensor; the dtype is torch's name without the prefix, e.g.
    ``float32``."""

    shape: tuple[int, ...]
    dtype: str


class Workload(Record, frozen=True, kw_only=True):
    """All that a level has to execute: a model, its inputs, batch size, precision and mode.

    precision: ``default`` is PyTorch's own (on a GPU, TF32 in convolutions and IEEE float32 in
    matrix products), ``ieee`` is float32 everywhere, ``tf32`` is TF32 wherever the hardware has it,
    ``bf16`` and ``fp16`` follow autocast, with float32 master weights. inputs: the types of one
    batch, batch dimension first, and of the draws that are given after them. draws: their number.
    random_layers: paths of the layers that drop something in training, and names of functions that
    do. loss_sha256: of the pickle of a loss of the user's own. phase: of text generation,
    ``prefill`` or ``decode``. tokens: of text, that one iteration processes, of all samples
    together; 0 where samples are not text. ranks: processes that train together, each on its own
    samples; batch, inputs, targets, batches, threads and tokens are those of one. changed_inputs:
    places of those that the module changes in place; assigned_buffers: names of those that it
    replaces by other tensors; each pass is given copies of both. takes_gradients: whether it
    differentiates in its forward pass, which in inference then runs under no_grad. digest:
    identifies the content (source, weights, shapes, mode), so that equal workloads can be
    recognised.
    """

    model: str
    source: ModelSource
    mode: Mode
    batch: int
    inputs: tuple[TensorType, ...]
    targets: tuple[TensorType, ...] = ()
    device: Device = "cpu"
    precision: Precision = "default"
    loss: str = ""
    loss_sha256: str = ""
    optimizer: Optimizer = Optimizer()
    initialisation: str = "default"
    seed: int = 0
    weights: str = ""
    data: str = ""
    batches: int = 4
    threads: int = 1
    parameters: int = 0
    random_layers: tuple[str, ...] = ()
    draws: int = 0
    phase: Phase = ""
    tokens: int = 0
    changed_inputs: tuple[int, ...] = ()
    assigned_buffers: tuple[str, ...] = ()
    takes_gradients: bool = False
    ranks: int = 1
    digest: str = ""
