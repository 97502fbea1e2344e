"""Each activation in C, one file an activation, found by looking into this folder."""
