"""Measures: races of workers, statistics, clocks, energy and memory."""
