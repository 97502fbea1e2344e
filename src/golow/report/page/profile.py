"""A profile as sections: what a step's time goes to, its layers across levels, its operators and
kernels, what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from golow.profiling.record import LevelProfile, Profile
from golow.report.layers import Row, layer_columns, layer_rows
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.profiling.advice import TEXTS
from golow.report.profiling.figures import ROLE_COLOURS
from golow.report.units import bytes_text, count_text, seconds_text, share_text

OTHER = "#9aa3ad"


def sections(found: Sequence[Profile], name: str) -> list[Block]:
    """name: prefix of the sections' anchors, unique in the page. Each precision has its own."""
    made = []
    for number, profile in enumerate(found):
        of = f", {profile.workload.precision}" if len(found) > 1 else ""
        own = f"{name}-{number}"
        made.append(blocks.section(f"{own}-why", f"Where the time goes{of}", _summary(profile)))
        if any(level.layers for level in profile.levels):
            made.append(blocks.section(f"{own}-layers", f"By layer{of}", _layers(profile)))
        if any(level.operators or level.kernels for level in profile.levels):
            made.append(blocks.section(f"{own}-parts", f"Operators{of}", _parts(profile)))
    return made


def _summary(found: Profile) -> Iterator[Block]:
    for finding in found.findings:
        if finding.name in TEXTS:
            yield blocks.paragraph(f"{finding.level}: {TEXTS[finding.name](finding)}")
            if finding.command:
                yield blocks.code(finding.command)
    profiled = [level for level in found.levels if level.summary]
    longest = max((_seconds(level) for level in profiled), default=1.0)
    roles = list(dict.fromkeys(part.role for level in profiled for part in level.summary))
    columns = [blocks.column("level", number=False), blocks.column("a profiled step", number=False)]
    columns += [blocks.column(title) for title in ("profiled", "without profiler", *roles)]
    rows = [_summary_row(level, roles, longest) for level in profiled]
    if rows:
        yield blocks.table("What a step's time goes to", columns, rows)
    for level in found.levels:
        if not level.summary:
            why = level.missing or f"{level.verdict}: {level.reason}"
            yield blocks.paragraph(f"{level.level} has no profile: {why}", style="note")


def _seconds(level: LevelProfile) -> float:
    return sum(part.seconds for part in level.summary)


def _summary_row(level: LevelProfile, roles: Sequence[str], longest: float) -> list[Block]:
    by_role = {part.role: part for part in level.summary}
    stack = [
        {
            "share": part.seconds / longest,
            "colour": ROLE_COLOURS.get(part.role, OTHER),
            "text": f"{part.role}: {seconds_text(part.seconds)}, {share_text(part.share)}",
        }
        for part in level.summary
    ]
    time = level.time.value if level.time else None
    shares = [by_role[role].share if role in by_role else 0.0 for role in roles]
    return [
        blocks.cell(level.level, colour=blocks.level_colour(level.level)),
        blocks.cell("", _seconds(level), stack=stack),
        blocks.cell(seconds_text(level.profiled), level.profiled),
        blocks.cell(seconds_text(time), time),
        *(blocks.cell(share_text(share), share) for share in shares),
    ]


def _layers(found: Profile) -> Iterator[Block]:
    yield blocks.paragraph(
        "The same layer stands in one row at every level, and all bars have one scale. An empty "
        "cell runs as one step with an earlier layer, or is not in that level.",
        style="note",
    )
    columns = layer_columns(found.levels)
    longest = max((one for c in columns for one in c.seconds.values()), default=0.0) or 1.0
    heads = [blocks.column("layer", number=False), blocks.column("phase", number=False)]
    for one in columns:
        heads += [blocks.column(one.level, number=False), blocks.column("time")]

    def cells(row: Row) -> list[Block]:
        made = [blocks.cell(row.module or "(top)"), blocks.cell(row.phase)]
        for one in columns:
            made += _layer_cells(one.seconds.get(row), longest, blocks.level_colour(one.level))
        return made

    yield blocks.table("Seconds of each layer", heads, map(cells, layer_rows(columns)))


def _layer_cells(seconds: float | None, longest: float, colour: str) -> list[Block]:
    if seconds is None:
        return [blocks.cell(""), blocks.cell("")]
    share, text = seconds / longest, seconds_text(seconds)
    bar = {"value": share, "low": share, "high": share, "text": text}
    return [blocks.cell("", seconds, bar=bar, colour=colour), blocks.cell(text, seconds)]


def _parts(found: Profile) -> Iterator[Block]:
    for level in found.levels:
        if level.operators:
            yield _operators(level)
        if level.kernels:
            columns = [
                blocks.column("kernel", number=False),
                *map(blocks.column, ("calls", "time")),
            ]
            rows = [
                [
                    blocks.cell(one.name),
                    blocks.cell(count_text(one.calls), one.calls),
                    blocks.cell(seconds_text(one.seconds), one.seconds),
                ]
                for one in level.kernels
            ]
            yield blocks.table(f"{level.level}: kernels of a step", columns, rows)


def _operators(level: LevelProfile) -> Block:
    titles = ("calls", "own time", "with what it calls", "on the device", "own memory")
    columns = [blocks.column("operator", number=False), *map(blocks.column, titles)]
    rows = [
        [
            blocks.cell(f"{one.name} {one.shapes}".strip()),
            blocks.cell(count_text(one.calls), one.calls),
            blocks.cell(seconds_text(one.self_host), one.self_host),
            blocks.cell(seconds_text(one.total_host), one.total_host),
            blocks.cell(seconds_text(one.self_device), one.self_device),
            blocks.cell(bytes_text(one.self_host_memory), one.self_host_memory),
        ]
        for one in sorted(level.operators, key=lambda one: -one.self_host - one.self_device)
    ]
    return blocks.table(f"{level.level}: operators of a step", columns, rows)
