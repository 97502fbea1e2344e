"""Functions of one element: one file each. Convolutions, linear layers and norms take them in."""
