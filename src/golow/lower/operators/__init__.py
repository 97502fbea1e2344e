"""The vocabulary: one file per operator, found by looking into this folder."""
