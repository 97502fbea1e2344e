"""Grids of comparisons that survive what happens to them."""
