"""JAX: the graph as the source of a function that XLA compiles."""
