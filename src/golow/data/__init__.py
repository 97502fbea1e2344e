"""Data sets: readers, downloads, and the prepared file that workers map."""
