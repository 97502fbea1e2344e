"""Each activation in C, one file for each, found by listing this folder."""
