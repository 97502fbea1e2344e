"""Calls of ATen, drawn at random: for each of its names that the vocabulary spells, every argument
by the name that its schema has for it. An argument that is left out has its default.

A file for each family, as in ``golow.lower.decompositions``.
"""

from __future__ import annotations

from hypothesis import strategies as st

from support.aten_calls import (
    activations,
    elements,
    indices,
    layers,
    losses,
    norms,
    pooling,
    shapes,
    statistics,
)
from support.aten_calls.drawing import Drawn

CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    **activations.CALLS,
    **elements.CALLS,
    **indices.CALLS,
    **layers.CALLS,
    **losses.CALLS,
    **norms.CALLS,
    **pooling.CALLS,
    **shapes.CALLS,
    **statistics.CALLS,
}
