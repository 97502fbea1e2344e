"""Training at every level: the same bytes in the same order from the same start."""
