"""The levels of text generation, one file each."""
