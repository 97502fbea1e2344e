"""JAX's spelling of every operator, found by looking into this folder."""
