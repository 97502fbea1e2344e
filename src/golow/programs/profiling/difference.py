"""Compares two profiles: for each level in both, how the time of a step and of its parts changed.

All times are seconds of a step. What occurs in one profile only counts as zero in the other, so
that the changes of the parts add up to the change of their total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from golow.measure.environment import unlike
from golow.programs.comparison.store import unlike_workloads
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.summary import ROLES
from golow.records.record import Record


class Change(Record, frozen=True, kw_only=True):
    """One thing in two profiles.

    before, after: its seconds in a step; None where it does not occur. calls: in a step, likewise.
    detail: the inputs' shapes of an operator, the phase of a layer.
    """

    name: str
    detail: str = ""
    before: float | None
    after: float | None
    calls_before: float | None = None
    calls_after: float | None = None

    @property
    def seconds(self) -> float:
        """The increase."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def ratio(self) -> float | None:
        """After over before; None without both."""
        return self.after / self.before if self.before and self.after is not None else None


class LevelDifference(Record, frozen=True, kw_only=True):
    """One level in two profiles.

    before, after: the precisions. time: of a step without a profiler, profiled: with one. roles: of
    the execution summary, in its order; they add up to ``profiled``. operators (their own time on
    host and device), kernels and layers: the largest change first. Those of which one profile
    has none to compare are empty; missing states why.
    """

    level: str
    before: str
    after: str
    time: Change
    profiled: Change
    roles: tuple[Change, ...] = ()
    operators: tuple[Change, ...] = ()
    kernels: tuple[Change, ...] = ()
    layers: tuple[Change, ...] = ()
    missing: tuple[str, ...] = ()


class Place(NamedTuple):
    """A level in one precision."""

    precision: str
    level: str


class ProfileDifference(Record, frozen=True, kw_only=True):
    """Two profiles. levels: those in both. only_before, only_after: the others. unlike: what
    differs in workload, machine or versions, and may explain a change."""

    levels: tuple[LevelDifference, ...]
    only_before: tuple[Place, ...] = ()
    only_after: tuple[Place, ...] = ()
    unlike: tuple[str, ...] = ()


def difference(before: Sequence[Profile], after: Sequence[Profile]) -> ProfileDifference:
    """Changes from one saved profile to another, level by level in each precision."""
    old, new = _places(before), _places(after)
    return ProfileDifference(
        levels=tuple(
            level_difference(old[place], new[place], place.precision, place.precision)
            for place in old
            if place in new
        ),
        only_before=tuple(place for place in old if place not in new),
        only_after=tuple(place for place in new if place not in old),
        unlike=_unlike(before, after),
    )


def between_precisions(before: Profile, after: Profile) -> tuple[LevelDifference, ...]:
    """Changes from one precision to another at each level that has both."""
    new = {level.level: level for level in after.levels}
    precisions = before.workload.precision, after.workload.precision
    return tuple(
        level_difference(level, new[level.level], *precisions)
        for level in before.levels
        if level.level in new
    )


def level_difference(
    old: LevelProfile, new: LevelProfile, before: str, after: str
) -> LevelDifference:
    """One level in two profiles of those precisions."""
    both = bool(old.summary and new.summary)
    return LevelDifference(
        level=old.level,
        before=before,
        after=after,
        time=Change(
            name="without profiler",
            before=old.time.value if old.time else None,
            after=new.time.value if new.time else None,
        ),
        profiled=Change(name="with profiler", before=old.profiled, after=new.profiled),
        roles=_in_order(_changes(_roles(old), _roles(new))) if both else (),
        operators=_largest_first(_operators(old, new)) if both else (),
        kernels=_largest_first(_changes(_kernels(old), _kernels(new))) if both else (),
        layers=_largest_first(_changes(_layers(old), _layers(new)))
        if old.layers and new.layers
        else (),
        missing=(*_missing(old, "before"), *_missing(new, "after")),
    )


def _missing(level: LevelProfile, when: str) -> Iterator[str]:
    if not level.summary:
        reason = level.missing or level.reason or level.verdict
        yield f"{level.level} has no profile {when}: {reason}"
    if not level.layers and level.layers_missing:
        yield f"{level.level} has no times by layer {when}: {level.layers_missing}"


# ---------------------------------------------------------------- what is compared


class Key(NamedTuple):
    """The key of one thing in both profiles."""

    name: str
    detail: str = ""


class Spent(NamedTuple):
    """Seconds and, of what is called, calls in a step."""

    seconds: float
    calls: float | None = None


def _roles(level: LevelProfile) -> dict[Key, Spent]:
    return _summed((Key(part.role), Spent(part.seconds)) for part in level.summary)


def _operators(old: LevelProfile, new: LevelProfile) -> list[Change]:
    """Shapes tell operators apart only if both profiles have them."""
    by_shape = all(any(item.shapes for item in level.operators) for level in (old, new))

    def spent(level: LevelProfile) -> dict[Key, Spent]:
        return _summed(
            (
                Key(item.name, item.shapes if by_shape else ""),
                Spent(item.self_host + item.self_device, item.calls),
            )
            for item in level.operators
        )

    return _changes(spent(old), spent(new))


def _kernels(level: LevelProfile) -> dict[Key, Spent]:
    """By name: a kernel's grid depends on the workload."""
    return _summed((Key(item.name), Spent(item.seconds, item.calls)) for item in level.kernels)


def _layers(level: LevelProfile) -> dict[Key, Spent]:
    """By the first module of each step and its phase: medians over the iterations."""
    return _summed(
        (Key(step.modules[0], step.phase), Spent(median(step.ns) / 1e9)) for step in level.layers
    )


def _summed(items: Iterable[tuple[Key, Spent]]) -> dict[Key, Spent]:
    found: dict[Key, Spent] = {}
    for key, spent in items:
        earlier = found.get(key)
        if earlier is not None:
            calls = None if spent.calls is None else spent.calls + (earlier.calls or 0.0)
            spent = Spent(spent.seconds + earlier.seconds, calls)
        found[key] = spent
    return found


def _changes(old: Mapping[Key, Spent], new: Mapping[Key, Spent]) -> list[Change]:
    absent = Spent(0.0)
    return [
        Change(
            name=key.name,
            detail=key.detail,
            before=old[key].seconds if key in old else None,
            after=new[key].seconds if key in new else None,
            calls_before=old.get(key, absent).calls,
            calls_after=new.get(key, absent).calls,
        )
        for key in dict.fromkeys((*old, *new))
    ]


def _in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Sort by role. Roles that only a later golow knows come last."""
    places = {role: place for place, role in enumerate(ROLES)}
    return tuple(sorted(changes, key=lambda item: (places.get(item.name, len(ROLES)), item.name)))


def _largest_first(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda item: (-abs(item.seconds), item.name, item.detail)))


# ---------------------------------------------------------------- what may be compared


def _places(profiles: Sequence[Profile]) -> dict[Place, LevelProfile]:
    return {
        Place(profile.workload.precision, level.level): level
        for profile in profiles
        for level in profile.levels
    }


def _unlike(before: Sequence[Profile], after: Sequence[Profile]) -> tuple[str, ...]:
    new = {profile.workload.precision: profile for profile in after}
    found: dict[str, None] = {}  # in order, each once: precisions mostly differ in the same things
    for old in before:
        other = new.get(old.workload.precision)
        if other is None:
            continue
        found |= dict.fromkeys(unlike_workloads(old.workload, other.workload))
        if old.environment is None or other.environment is None:
            found["the machine is not in the record of an earlier golow"] = None
        else:
            machines = old.environment, other.environment
            found |= dict.fromkeys(unlike(*machines, old.workload.device))
    return tuple(found)
