"""Functions of elements as C, the same for a CPU and a GPU."""
