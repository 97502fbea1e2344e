"""LibTorch: C++ emitted from the graph, compiled, and run without Python."""
