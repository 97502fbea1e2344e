"""The graph, its verifier, patterns and rewriting."""
