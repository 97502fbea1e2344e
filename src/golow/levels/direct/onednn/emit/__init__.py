"""A built plan as C++ source that calls oneDNN."""
