"""Reports of a profile."""
