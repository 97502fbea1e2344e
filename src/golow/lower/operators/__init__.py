"""The vocabulary: one file an operator. Files are found by looking into this folder."""
