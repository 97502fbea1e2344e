"""What the level does for an operator: a file each, found by looking into this folder."""
