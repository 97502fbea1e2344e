"""Reports of a training."""
