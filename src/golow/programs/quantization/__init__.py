"""Quantisation: a network in whole numbers, how far it moved, and what that costs in the task."""
