"""Kinds of steps of a plan, and the parts of a built plan."""
