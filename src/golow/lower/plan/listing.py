"""A plan as text: a line for each step."""

from __future__ import annotations

from golow.lower.plan.memory_traffic import layout_bytes
from golow.lower.plan.plan import Operand, Plan


def table_lines(plan: Plan) -> list[str]:
    """The plan as a readable table with one line per step."""
    rows = [("step", "operation", "layer", "reads", "writes", "at", "bytes", "by")]
    for number, step in enumerate(plan.steps):
        written = [plan.buffers[operand.buffer] for operand in step.writes]
        rows.append(
            (
                f"{number}{' once' if step.once else ''}",
                step.operation,
                step.modules[0] + (f" +{len(step.modules) - 1}" if len(step.modules) > 1 else ""),
                " ".join(_operand_text(plan, operand) for operand in step.reads),
                " ".join(_operand_text(plan, operand) for operand in step.writes),
                " ".join(f"{buffer.place[0]}{buffer.offset}" for buffer in written),
                " ".join(str(buffer.bytes) for buffer in written),
                step.implementation,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    sizes = ", ".join(f"{place} {size:,} B" for place, size in plan.sizes.items())
    moved = f"{layout_bytes(plan):,} B moved for layout alone"
    return [*lines, "", f"{len(plan.steps)} steps; {sizes}; {moved}"]


def _operand_text(plan: Plan, operand: Operand) -> str:
    return f"{plan.buffers[operand.buffer].name}:{operand.layout}"
