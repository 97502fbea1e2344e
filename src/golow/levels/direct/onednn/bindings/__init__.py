"""oneDNN's C API."""
