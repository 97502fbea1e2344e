"""Where an iteration gets its batch. golow's batches are on the device, so that an iteration is the
network alone; a program that trains or serves has to bring them there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from golow.levels.choices.choice import IN_PYTORCH, Alternative, Choice


class FromHost(NamedTuple):
    """Batches are in the host's memory, and each iteration sends its own to the device.

    pinned: in memory that the device reads itself. waits: whether the host waits for the copy.
    images: the dtype of images on the way. Targets of classes are sent as int64, or with images as
    uint8 in the smallest type that holds them.
    """

    pinned: bool = False
    waits: bool = True
    images: Literal["float32", "float64", "uint8"] = "float32"


class FromLoader(NamedTuple):
    """Each iteration takes its batch from a data loader; on a GPU it then sends it.

    workers: processes of the loader; 0 for none. prefetch: batches that each of them prepares
    ahead. pinned: the loader copies each batch to pinned memory, and the host does not wait for the
    copy to the device.
    """

    workers: int = 0
    prefetch: int = 2
    pinned: bool = False


HOST = "the host's memory, {}"
TO = "batch.to(device)"
COPIES = (
    (
        "from_host",
        "float32 in ordinary memory, a blocking copy",
        FromHost(),
        "pageable, the host waits",
        TO,
    ),
    (
        "from_host_pinned",
        "float32 in pinned memory, a blocking copy",
        FromHost(pinned=True),
        "pinned, the host waits",
        "batch.pin_memory().to(device)",
    ),
    (
        "from_host_pinned_async",
        "float32 in pinned memory, a non-blocking copy",
        FromHost(pinned=True, waits=False),
        "pinned, the host does not wait",
        "batch.pin_memory().to(device, non_blocking=True)",
    ),
    (
        "from_host_float64",
        "images as float64, converted on the device: twice the bytes",
        FromHost(images="float64"),
        "pageable, as float64, the host waits",
        "batch.to(device).float()",
    ),
    (
        "from_host_uint8",
        "images as uint8, classes in a small type, converted on the device: a quarter of the bytes",
        FromHost(images="uint8"),
        "pageable, as uint8, the host waits",
        "pixels.to(device).float()",
    ),
)
LOADERS = (
    ("data_loader", FromLoader()),
    ("data_loader_2", FromLoader(workers=2)),
    ("data_loader_4", FromLoader(workers=4)),
    ("data_loader_2_prefetch_8", FromLoader(workers=2, prefetch=8)),
)
PINNED_LOADERS = (
    ("data_loader_pinned", FromLoader(pinned=True)),
    ("data_loader_2_pinned", FromLoader(workers=2, pinned=True)),
)


def read(program: Any) -> str:
    """Report the program's source of tensors or its loader."""
    return str(program.source)


def _takes(kind: FromHost | FromLoader) -> Callable[[Any], None]:
    def call(program: Any) -> None:
        program.habits.batches = kind

    return call


def _copy(name: str, summary: str, kind: FromHost, value: str, python: str) -> Alternative:
    return Alternative(
        name=name,
        summary=f"from the host: {summary}",
        value=HOST.format(value),
        call=_takes(kind),
        devices=("cuda",),
        python=python,
    )


def _loader(name: str, kind: FromLoader) -> Alternative:
    ahead = f", {kind.prefetch} batches ahead" if kind.workers else ""
    pinned = ", pinned" if kind.pinned else ""
    arguments = f"num_workers={kind.workers}"
    arguments += f", prefetch_factor={kind.prefetch}" if kind.workers else ""
    arguments += ", pin_memory=True" if kind.pinned else ""
    where = f"{kind.workers} workers{ahead}" if kind.workers else "no workers"
    return Alternative(
        name=name,
        summary=f"from a torch.utils.data.DataLoader over samples in memory, {where}{pinned}",
        value=f"a data loader, {kind.workers} workers{ahead}{pinned}",
        call=_takes(kind),
        devices=("cuda",) if kind.pinned else (),
        python=f"DataLoader(samples, batch_size=..., {arguments})",
    )


CHOICES = (
    Choice(
        name="batch_source",
        summary="where an iteration gets its batch; the cost is relative to a batch on the device",
        made_by="golow",
        where="src/golow/levels/torch/batch_sources.py; users decide it in their training loop",
        levels=IN_PYTORCH,
        read=read,
        costs="the host's cores and memory; the GPU's memory for the batch that arrives",
        alternatives=(
            *(_copy(*one) for one in COPIES),
            *(_loader(*one) for one in (*LOADERS, *PINNED_LOADERS)),
        ),
    ),
)
