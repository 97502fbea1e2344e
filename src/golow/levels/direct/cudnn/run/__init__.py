"""A plan in its worker: execution as a CUDA graph, batches, profiling."""
