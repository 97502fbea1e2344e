"""A plan in its worker: memory, execution, layouts chosen by timing."""
