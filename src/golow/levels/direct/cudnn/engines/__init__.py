"""Engines: which library or kernel computes a problem, by heuristics or timing."""
