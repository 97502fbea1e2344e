"""Hostile inputs, each made from a seed, and the warm process that runs golow on them."""
