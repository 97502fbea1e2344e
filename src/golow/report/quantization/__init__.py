"""A quantisation as text."""
