"""The layers of a profile as a tree: a row per layer, a column per level, all bars on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from golow.programs.profiling.profile_record import Profile
from golow.report.layers import (
    PHASES,
    Column,
    Row,
    columns_at,
    deepest,
    group,
    layer_rows,
    readable_depth,
)
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.units import seconds_text

DEEPEST = 16
"""Components of a path, so that no record makes a tree that takes long."""


class Node(NamedTuple):
    """A row of the tree. depth: of the paths at which its seconds are; parent: its number. itself:
    it is what a module does outside its children."""

    row: Row
    depth: int
    parent: int | None
    itself: bool

    @property
    def name(self) -> str:
        """The path, or the phase at the root."""
        if self.depth == 0:
            return self.row.phase
        return f"{self.row.module or '(top)'}{' itself' if self.itself else ''}"


def blocks_of(found: Profile) -> Iterator[Block]:
    """The tree, and why a level is not in it."""
    yield blocks.paragraph(
        "The same layer is in one row at every level, and all bars have one scale. Click a "
        "layer to see its parts. An empty cell runs as one step with the layer that it names, or "
        "is not in that level.",
        style="note",
    )
    at = {d: columns_at(found.levels, d) for d in range(min(deepest(found.levels), DEEPEST) + 1)}
    nodes = list(tree_of(at))
    longest = max((s for column in at[1] for s in column.seconds.values()), default=0.0) or 1.0
    heads = [blocks.column("layer", number=False), blocks.column("phase", number=False)]
    heads += [blocks.column(column.level, number=False) for column in at[0]]
    rows = [
        [
            blocks.cell(node.name),
            blocks.cell(node.row.phase),
            *(_cell(column, node, longest) for column in at[node.depth]),
        ]
        for node in nodes
    ]
    depth = readable_depth(found.levels)
    opened = [number for number, node in enumerate(nodes) if node.depth < depth]
    caption = "Seconds of each layer, and of all that is in it"
    yield blocks.tree(caption, heads, rows, [node.parent for node in nodes], opened)
    for level in found.levels:
        if level.layers_missing and not level.layers:
            said = f"{level.level} has no times by layer: {level.layers_missing}"
            yield blocks.paragraph(said, style="note")


def tree_of(at: Mapping[int, Sequence[Column]]) -> Iterator[Node]:
    """Every node after its parent, in order of execution. at: the levels' columns by the number of
    components that their paths keep, from 0."""
    below = {depth: _by_parent(at[depth], depth - 1) for depth in at if depth}
    numbers = iter(range(1 << 62))

    def grown(row: Row, depth: int, parent: int | None, itself: bool) -> Iterator[Node]:
        number = next(numbers)
        yield Node(row, depth, parent, itself)
        children = [] if itself else below.get(depth + 1, {}).get(row, [])
        while children == [row]:  # nothing is in it
            depth += 1
            children = below.get(depth + 1, {}).get(row, [])
        for child in children:
            yield from grown(child, depth + 1, number, itself=depth > 0 and child == row)

    roots = {row.phase for column in at[0] for row in column.seconds}
    for phase in PHASES:
        if phase in roots:
            yield from grown(Row("", phase), 0, None, itself=False)


def _by_parent(columns: Sequence[Column], depth: int) -> dict[Row, list[Row]]:
    found: dict[Row, list[Row]] = {}
    for row in layer_rows(columns):
        found.setdefault(Row(group(row.module, depth), row.phase), []).append(row)
    return found


def _cell(column: Column, node: Node, longest: float) -> Block:
    """Its seconds; with a bar unless it is a whole phase, which would make all others short."""
    seconds = column.seconds.get(node.row)
    if seconds is None:
        into = column.fused.get(node.row)
        return blocks.cell("" if into is None else f"with {into.module or '(top)'}")
    if node.depth == 0:
        return blocks.cell(seconds_text(seconds), seconds)
    share, text = seconds / longest, seconds_text(seconds)
    bar = {"value": share, "low": share, "high": share, "text": text}
    return blocks.cell(text, seconds, bar=bar, colour=blocks.level_colour(column.level))
