"""Grids of comparisons that survive crashes and interruptions."""
