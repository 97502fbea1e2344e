"""Fusions: epilogues, prologues, horizontal, pointwise; and what they need."""
