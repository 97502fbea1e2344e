"""The published models of a study: their weights, their phase, and their downloads."""

from __future__ import annotations

import msgspec

from golow.programs.study.study_record import Study
from golow.records.errors import GolowError
from golow.records.workload import Phase
from golow.workload.model_names import PUBLISHED
from golow.workload.source import locate


def with_published(
    study: Study, *, pretrained: bool | None, download: bool, phase: Phase | None
) -> Study:
    """The study with these instead of its own, where they are not None.

    download: fetch now what its models need, because its cells, measured in separate
    processes, download nothing. Raises `GolowError` for what cannot be downloaded.
    """
    given = pretrained is not None or download or phase is not None
    if given and not any(model.startswith(PUBLISHED) for model in study.model):
        raise GolowError(
            "--random-weights, --pretrained, --download and --phase are for hf: and timm:; "
            f"{study.name} has no such model",
            "leave them out.",
        )
    if pretrained is not None:
        study = msgspec.structs.replace(study, pretrained=pretrained)
    if phase is not None:
        study = msgspec.structs.replace(study, phase=phase)
    if download:
        for model in study.model:
            if model.startswith(PUBLISHED):
                locate(model, pretrained=study.pretrained, download=True)
    return study
