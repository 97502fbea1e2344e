"""A training step of the caller's own module, in the caller's process."""
