"""Checks a level: its tensors against float64, and the limit that rounding allows."""
