"""What the user asked for: model, inputs, graph, and the bundle for workers."""
