"""Elementwise functions, one file each. Convolutions, linear layers and norms can absorb them."""
