"""Manifest of an artifact: its inputs and outputs, its plans, what made it and what it
needs."""

from __future__ import annotations

from typing import Literal

import msgspec

from golow.records.errors import GolowError
from golow.records.record import Record
from golow.records.workload import Precision

FORMAT = 1
"""Raised when an older golow could not read what a newer one writes. Fields with a default may be
added without that."""
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
GRAPH, LAYOUTS, CONSTANTS = "graph.json", "layouts.json", "constants.safetensors"
STEPS = "steps.txt"
"""In the folder of a plan."""
KERNELS, ENGINES = "kernels", "engines"
"""Folders: compiled kernels, and which engine of the library computes what."""
CHECK_INPUTS, CHECK_OUTPUTS = "check/inputs.safetensors", "check/outputs.safetensors"


class Input(Record, frozen=True, kw_only=True):
    """An input of the module.

    name: the parameter of the forward pass; empty if it has none. shape: of the example. batched,
    long: whether its first axis is the batch, its second the length of text. changed: whether the
    module writes it.
    """

    name: str
    label: str
    shape: tuple[int, ...]
    dtype: str
    batched: bool
    long: bool = False
    changed: bool = False


class Output(Record, frozen=True, kw_only=True):
    """A tensor that the module returns. lengths: its axes that have the length of text."""

    dtype: str
    lengths: tuple[int, ...] = ()


class Nest(Record, frozen=True, kw_only=True):
    """How the module's output is nested: a tensor by its number, nothing, or several of such.
    Named tuples, data classes and the like are mappings."""

    kind: Literal["tensor", "nothing", "list", "tuple", "mapping"]
    tensor: int = 0
    names: tuple[str | int, ...] = ()
    parts: tuple[Nest, ...] = ()


class Plan(Record, frozen=True, kw_only=True):
    """A plan of one size. length: of text; 0 without. folder: where its graph, constants and
    layouts are. outputs: the shapes of the outputs."""

    batch: int
    length: int
    folder: str
    outputs: tuple[tuple[int, ...], ...]


class Weight(Record, frozen=True, kw_only=True):
    """A parameter or buffer that the plans read. tied: its other names in the state dict."""

    shape: tuple[int, ...]
    dtype: str
    tied: tuple[str, ...] = ()


class StoredCheck(Record, frozen=True, kw_only=True):
    """Allowed errors of the example's outputs at this size, as root mean squares."""

    batch: int
    length: int
    limits: tuple[float, ...]


class Origin(Record, frozen=True, kw_only=True):
    """Versions and machine that built an artifact."""

    golow: str
    torch: str
    library: str
    processor: str


class Manifest(Record, frozen=True, kw_only=True):
    """All of it.

    instruction_sets: of the processor that kernels were compiled for. tuned: whether engines were
    chosen by timing them. pads: whether a batch
    between two sizes is padded. batch: of the example.
    """

    format: int
    level: str
    model: str
    origin: Origin
    precision: Precision
    threads: int
    inputs: tuple[Input, ...]
    batch: int
    pads: bool
    outputs: tuple[Output, ...]
    nest: Nest
    plans: tuple[Plan, ...]
    weights: dict[str, Weight]
    instruction_sets: tuple[str, ...]
    check: StoredCheck
    tuned: bool = False


class _Form(msgspec.Struct):
    format: int


def decoded(data: bytes) -> Manifest:
    """Read a manifest. Raises `GolowError` for one of a later format, and one that is none."""
    try:
        form = msgspec.json.decode(data, type=_Form).format
        if form > FORMAT:
            raise GolowError(
                f"it has format {form}, which a later golow wrote; this one supports formats up to "
                f"{FORMAT}",
                "pip install --upgrade golow",
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise GolowError(f"its {MANIFEST} cannot be read: {error}") from error


def source_entry(digest: str) -> str:
    """The entry of the source of compiled kernels."""
    return f"{KERNELS}/{digest}.cpp"


def library_entry(digest: str) -> str:
    """The entry of what the building machine compiled of it."""
    return f"{KERNELS}/{digest}.so"
