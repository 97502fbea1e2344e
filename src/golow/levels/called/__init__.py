"""A direct level's plan as a callable on PyTorch's tensors, in the process that built it."""
