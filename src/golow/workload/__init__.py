"""The user's request as a workload: model, inputs, graph, and the bundle for workers."""
