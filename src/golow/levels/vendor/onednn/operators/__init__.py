"""The operators that the level runs: one file each, found by looking into this folder."""
