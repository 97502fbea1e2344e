"""From a PyTorch model to a plan: capture, passes from graph to graph, memory."""
