"""A compiled module as a file, which runs without PyTorch."""
