"""Reports of a study."""
