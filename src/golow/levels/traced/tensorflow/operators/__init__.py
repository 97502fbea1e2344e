"""Operators that TensorFlow has in a form of its own, found by looking into this folder."""
