"""Explanations of a lowered model: its graph, which levels support it, and what bounds it."""
