"""Passes that find an operator in its arithmetic, or keep it whole."""
