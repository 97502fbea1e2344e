"""The levels of text generation, a file each."""
