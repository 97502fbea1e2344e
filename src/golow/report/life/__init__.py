"""Reports of a life cycle."""
