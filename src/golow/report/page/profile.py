"""A profile as sections: what a step's time goes to and what to do about it, its layers across
levels, the roofline, operators and kernels, memory over the step, and the way down of a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from golow.programs.profiling.idle import CAUSES
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.roofline import step_rate
from golow.programs.profiling.summary import ROLES
from golow.report.comparison.table import workload_text
from golow.report.page import blocks, layer_tree, memory, roofline, way_down
from golow.report.page.blocks import Block
from golow.report.profiling.advice import TITLE, grouped, to_paste, words
from golow.report.profiling.communication import collectives_table, ranks_table
from golow.report.profiling.figures import ROLE_COLOURS
from golow.report.profiling.table import GPU_ROWS, INTERRUPTED
from golow.report.units import bytes_text, count_text, decimal_text, seconds_text, share_text

OTHER = "#9aa3ad"


def title(found: Sequence[Profile]) -> str:
    """Title of its page: its subject."""
    return workload_text(found[0].workload)


def sections(found: Sequence[Profile], name: str) -> list[Block]:
    """name: prefix of the sections' anchors, unique in the page. Each precision has its own."""
    made = []
    for number, profile in enumerate(found):
        of = f", {profile.workload.precision}" if len(found) > 1 else ""
        own = f"{name}-{number}"
        made.append(blocks.section(f"{own}-why", f"Where the time goes{of}", _summary(profile)))
        if any(level.layers for level in profile.levels):
            title = f"By layer{of}"
            made.append(blocks.section(f"{own}-layers", title, layer_tree.blocks_of(profile)))
        if any(level.layers for level in profile.levels):
            title = f"Roofline{of}"
            made.append(blocks.section(f"{own}-roofline", title, roofline.blocks_of(profile)))
        if any(level.operators or level.kernels for level in profile.levels):
            made.append(blocks.section(f"{own}-parts", f"Operators{of}", _parts(profile)))
        if any(level.memory for level in profile.levels):
            title = f"Memory of a step{of}"
            made.append(blocks.section(f"{own}-memory", title, memory.blocks_of(profile)))
        if any(level.communication for level in profile.levels):
            title = f"Communication{of}"
            made.append(blocks.section(f"{own}-communication", title, _communication(profile)))
        for place, way in enumerate(profile.ways):
            title = f"The way down of {way.layer}{of}"
            made.append(blocks.section(f"{own}-way-{place}", title, way_down.blocks_of(way)))
    return made


def _summary(found: Profile) -> Iterator[Block]:
    if found.interrupted:
        yield blocks.paragraph(INTERRUPTED, style="note")
    profiled = [level for level in found.levels if level.summary]
    longest = max((_seconds(level) for level in profiled), default=1.0)
    if profiled:
        columns = [blocks.column(title, number=False) for title in ("level", "a profiled step")]
        columns += [blocks.column(title) for title in ("profiled", "without profiler")]
        rows = [_step_row(level, longest) for level in profiled]
        yield blocks.table("What a step's time goes to", columns, rows)
        yield _shares(found, profiled)
    for level in found.levels:
        if not level.summary:
            why = level.missing or f"{level.verdict}: {level.reason}"
            yield blocks.paragraph(f"{level.level} has no profile: {why}", style="note")
    yield from _advice(found)


def _communication(found: Profile) -> Iterator[Block]:
    for level in found.levels:
        if (between := level.communication) is not None:
            yield blocks.table_of(ranks_table(between), f"{level.level}: the ranks")
            every = collectives_table(between, len(between.collectives))
            yield blocks.table_of(every, f"{level.level}: collective operations of a step")


def _advice(found: Profile) -> Iterator[Block]:
    """Advice from the figures, as in the terminal, with lines to paste."""
    shown = grouped(found.findings)
    if shown:
        yield blocks.paragraph(TITLE, style="caption")
    for alike in shown:
        yield blocks.paragraph(words(alike))
        if line := to_paste(alike[0], found.workload):
            yield blocks.code(line)
        if alike[0].command:
            yield blocks.code(alike[0].command)


Figure = Callable[[LevelProfile], tuple[str, float | None]]


def _shares(found: Profile, levels: Sequence[LevelProfile]) -> Block:
    """One row per figure, a column per level, as in the terminal."""
    used = {part.role for level in levels for part in level.summary}
    columns = [blocks.column("share", number=False)]
    columns += [blocks.column(level.level) for level in levels]
    rows = [
        [
            blocks.cell(role, colour=ROLE_COLOURS.get(role, OTHER)),
            *(blocks.cell(*_as_share(_share_of(level, role))) for level in levels),
        ]
        for role in ROLES
        if role in used
    ]
    rows += [
        [blocks.cell(name), *(blocks.cell(*figure(level)) for level in levels)]
        for name, figure in _more_figures(found, levels).items()
    ]
    return blocks.table("Shares of the profiled step, and how the hardware was used", columns, rows)


def _share_of(level: LevelProfile, role: str) -> float:
    return next((part.share for part in level.summary if part.role == role), 0.0)


def _more_figures(found: Profile, levels: Sequence[LevelProfile]) -> dict[str, Figure]:
    """Further figures of the terminal's summary, as far as any of these levels has them: why the
    GPU was idle, how it was used, and the arithmetic of the step."""
    possible: dict[str, Figure] = {}
    for cause in CAUSES:
        possible[f"GPU idle: {cause}"] = lambda level, cause=cause: _as_share(  # type: ignore[misc]
            next((part.share for part in level.idle if part.role == cause), None)
        )
    for name, figure in GPU_ROWS.items():
        possible[name] = lambda level, figure=figure: _as_share(  # type: ignore[misc]
            figure(level.gpu) if level.gpu else None
        )
    possible["arithmetic of the step"] = lambda level: _as_rate(step_rate(found, level))
    return {
        name: figure
        for name, figure in possible.items()
        if any(figure(level)[1] is not None for level in levels)
    }


def _as_share(share: float | None) -> tuple[str, float | None]:
    return share_text(share), share


def _as_rate(rate: float | None) -> tuple[str, float | None]:
    return decimal_text(rate, "FLOP/s"), rate


def _seconds(level: LevelProfile) -> float:
    return sum(part.seconds for part in level.summary)


def _step_row(level: LevelProfile, longest: float) -> list[Block]:
    stack = [
        {
            "share": part.seconds / longest,
            "colour": ROLE_COLOURS.get(part.role, OTHER),
            "text": f"{part.role}: {seconds_text(part.seconds)}, {share_text(part.share)}",
        }
        for part in level.summary
    ]
    time = level.time.value if level.time else None
    return [
        blocks.cell(level.level, colour=blocks.level_colour(level.level)),
        blocks.cell("", _seconds(level), stack=stack),
        blocks.cell(seconds_text(level.profiled), level.profiled),
        blocks.cell(seconds_text(time), time),
    ]


def _parts(found: Profile) -> Iterator[Block]:
    for level in found.levels:
        if level.operators:
            yield _operators(level)
        if level.kernels:
            yield _kernels(level)


def _kernels(level: LevelProfile) -> Block:
    """Under their whole names, as the record has them."""
    titles = ("time", "share of the step", "calls", "grid", "block", "occupancy")
    columns = [blocks.column("kernel", number=False), *map(blocks.column, titles)]
    columns += [blocks.column(title, number=False) for title in ("tensor cores", "operator")]
    columns += [blocks.column(title, number=False) for title in ("layer", "phase")]
    rows = [
        [
            blocks.cell(one.name),
            blocks.cell(seconds_text(one.seconds), one.seconds),
            _share_cell(one.seconds / level.profiled if level.profiled else None),
            blocks.cell(count_text(one.calls), one.calls),
            blocks.cell("x".join(map(str, one.grid)), prod(one.grid)),
            blocks.cell("x".join(map(str, one.block)), prod(one.block)),
            _share_cell(one.occupancy),
            blocks.cell("yes" if one.tensor_cores else ""),
            *map(blocks.cell, (one.operator, one.layer, one.phase)),
        ]
        for one in level.kernels
    ]
    return blocks.table(f"{level.level}: kernels of a step", columns, rows, filtered=True)


def _share_cell(share: float | None) -> Block:
    return blocks.cell(share_text(share), share)


def _operators(level: LevelProfile) -> Block:
    titles = ("calls", "own time", "including callees", "on the device", "own memory")
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
    return blocks.table(f"{level.level}: operators of a step", columns, rows, filtered=True)
