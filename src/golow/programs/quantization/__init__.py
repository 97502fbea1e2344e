"""Quantisation: a network in integers, its distance from the original, and the loss of accuracy."""
