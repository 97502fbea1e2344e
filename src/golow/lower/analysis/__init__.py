"""Analyses of a graph: liveness, constants, ranges, operation counts."""
