"""Remarks on a load test: facts that a reader must know about its figures."""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.load.early_stopping import needed
from golow.programs.load.load_record import LoadTest
from golow.report.load.facts import rows
from golow.report.units import share_text

LATE = 0.1  # of the median latency: a generator that is later than that is named


def remarks(found: LoadTest) -> Iterator[str]:
    """Notes, the most important first."""
    if found.interrupted:
        yield "interrupted: partial results"
    yield from found.notes
    if found.shared:
        yield (
            "LoadGen shared the levels' cores because there were no others: this slows the "
            "levels and adds to every latency"
        )
    if unclear := sorted(_unclear(found)):
        least = ", ".join(f"p{100 * share:g} {needed(share):,}" for share in unclear)
        yield f"unclear: too few requests for LoadGen's early stopping; at least: {least}"
    if found.plan.repeats == 1 and len(found.levels) > 1:
        yield "one round: levels are not told apart; use --repeats 3 or more"
    yield from _late(found)
    if found.plan.texts is not None:
        yield (
            "tokens that wait for LoadGen's process arrive together: TTFT is then longer, and TPOT "
            "shorter, than the level's own"
        )
    yield (
        "padding: share of the processed tokens (or samples, if all have one size) that are padding"
    )
    yield (
        "wait: in the batcher's queue; batcher: transport, padding, and splitting answers; both "
        "are medians"
    )
    notes = [(note, level.label) for level in found.levels for note in level.notes]
    for note in dict.fromkeys(note for note, _ in notes):
        yield f"{', '.join(level for one, level in notes if one == note)}: {note}"
    if found.energy_missing:
        yield f"no energy: {found.energy_missing}"
    if any(run.dropped for level in found.levels for run in level.runs):
        yield "dropped: requests without an answer when LoadGen ended the run"


def _unclear(found: LoadTest) -> set[float]:
    """The percentiles that are not quoted somewhere for lack of requests."""
    listed = (row for scenario in found.plan.scenarios for row in rows(found, scenario))
    return {
        share
        for row in listed
        if row.scenario != "offline"
        for spread in row.spreads.values()
        for share, quoted in spread.percentiles.items()
        if quoted is not None and not quoted.is_sure
    }


def _late(found: LoadTest) -> Iterator[str]:
    """Levels for which the generator did not keep its own schedule."""
    worst: dict[str, float] = {}
    for level in found.levels:
        for run in level.runs:
            if run.late is not None and run.latencies and run.scenario == "server":
                middle = sorted(run.latencies)[len(run.latencies) // 2] / 1e9
                worst[level.label] = max(worst.get(level.label, 0.0), run.late / middle)
    late = [f"{level} {share_text(share)}" for level, share in worst.items() if share > LATE]
    if late:
        yield (
            "LoadGen issued requests late, which counts as latency; at most, in 99% of a run, by "
            f"this share of the median latency: {', '.join(late)}"
        )
