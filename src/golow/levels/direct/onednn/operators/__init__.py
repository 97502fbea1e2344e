"""The operators that the level runs: one file each, found by listing this folder."""
