"""Passes on ATen's calls, up to the vocabulary."""
