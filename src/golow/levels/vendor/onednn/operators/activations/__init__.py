"""Functions of one element: one file each, with what oneDNN calls it."""
