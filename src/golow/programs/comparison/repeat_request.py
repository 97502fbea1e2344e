"""The request of a recorded workload, for a model that golow can build by its name."""

from __future__ import annotations

from golow.models import ZOO
from golow.records.workload import ModelSource, Workload
from golow.workload.request import CALLERS_INPUTS, Request


def same_request(workload: Workload) -> Request | None:
    """The request that repeats this inference; None for the caller's own module or inputs."""
    source = workload.source
    if source.kind not in ("zoo", "huggingface", "timm") or workload.data == CALLERS_INPUTS:
        return None
    entry = ZOO.get(source.name) if source.kind == "zoo" else None
    drawn = workload.initialisation.partition(",")[0]
    shape = workload.inputs[0].shape
    images = entry.takes_images if entry is not None else source.kind == "timm"
    return Request(
        _name(source),
        mode=workload.mode,
        batch=workload.batch,
        input_shape=shape[1:] if images else None,
        sequence=sequence_of(workload),
        classes=source.arguments.get("classes"),
        weights=workload.weights or None,
        initialisation=drawn if entry is not None and not workload.weights else None,
        seed=workload.seed,
        threads=workload.threads,
        device=workload.device,
        precision=workload.precision,
        pretrained=source.pretrained if source.kind != "zoo" else None,
        phase=workload.phase,
    )


def _name(source: ModelSource) -> str:
    if source.kind == "zoo":
        return source.name
    return (
        f"timm:{source.name}" if source.kind == "timm" else f"hf:{source.name}:{source.attribute}"
    )


def sequence_of(workload: Workload) -> int | None:
    """Tokens of a sample, for a model of the zoo or of transformers that takes text."""
    source, shapes = workload.source, [item.shape for item in workload.inputs]
    if workload.phase == "decode":
        return shapes[1][2]
    if source.kind == "zoo":
        return shapes[0][1] if ZOO[source.name].sequence else None
    text = next((i for i, name in enumerate(source.keywords) if name == "input_ids"), None)
    return None if text is None else shapes[text][1]
