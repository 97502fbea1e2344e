"""Operators that PaddlePaddle has in a form of its own, found by looking into this folder."""
