"""One layer of a recurrent network in one direction, as ``lax.scan``."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.operators.recurrence import Recurrence


def recurrence(writer: Writer, given: Recurrence) -> None:
    """A call of the function for the kind of cell, which the source defines
    (`golow.levels.traced.jax.recurrent`)."""
    states = [given.hidden] if given.cell is None else [given.hidden, given.cell]
    needed = [given.x, *states, given.input_weight, given.hidden_weight]
    optional = [given.input_bias, given.hidden_bias]
    optional += [given.projection] if given.kind == "lstm" else []
    arguments = [writer.plain(item) for item in needed]
    arguments += ["None" if item is None else writer.plain(item) for item in optional]
    call = f"{given.kind}({', '.join(arguments)}, reverse={given.backwards})"
    if given.kind != "lstm":
        writer.put(call)
        return
    both = writer.line("both", call)
    writer.put(f"{both}[0]")
    writer.put(f"{both}[1]", index=1)


IMPLEMENTATIONS = (Implementation(Recurrence, recurrence),)
