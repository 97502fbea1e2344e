"""The caption of a profile's figures: the conditions, the machine, and which levels are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from golow.programs.profiling.profile_record import Profile
from golow.report.console import visible
from golow.report.style import Caption

PACKAGES = ("torch", "golow")


def captions(profiles: Sequence[Profile], what: str, *how: str) -> Caption:
    """what: the figure shows, in a few words. how: to read it."""
    workload = profiles[0].workload
    step = "a training step" if workload.mode == "train" else "inference"
    sizes = " and ".join("x".join(map(str, item.shape[1:])) for item in workload.inputs)
    where = f"{step}, batch {workload.batch} of {sizes or 'no input'}, {workload.device}"
    lines = [f"{workload.model}, {where}: {what}", *_machine(profiles[0])]
    if missing := " ".join(_remarks(profiles)):
        lines.append(missing)
    return Caption([visible(line) for line in lines], [visible(text) for text in how])


def _machine(profile: Profile) -> Iterator[str]:
    found, workload = profile.environment, profile.workload
    if found is None:
        return
    threads = f"{workload.threads} thread{'s' if workload.threads != 1 else ''}"
    places = [f"{found.cpu_model}, {threads}"]
    if workload.device == "cuda":
        gpu = " or ".join(dict.fromkeys(found.gpu)) or "a GPU"
        places.insert(0, f"{gpu}, driver {found.driver or '?'}")
    versions = [f"{name} {found.versions[name]}" for name in PACKAGES if name in found.versions]
    yield "; ".join([*places, ", ".join(versions)])


def _remarks(profiles: Sequence[Profile]) -> Iterator[str]:
    """Which levels a reader would miss."""
    for profile in profiles:
        without = [level for level in profile.levels if not level.summary]
        names = [
            f"{lv.level} ({lv.verdict if lv.verdict != 'match' else 'no profile'})"
            for lv in without
        ]
        if names:
            several = f", precision {profile.workload.precision}" if len(profiles) > 1 else ""
            yield f"Not profiled{several}: {'; '.join(names)}."
