"""Reports of a training run."""
