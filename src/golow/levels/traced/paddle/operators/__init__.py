"""Operators that PaddlePaddle has in a separate form, found by looking into this folder."""
