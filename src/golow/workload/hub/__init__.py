"""Models of transformers and timm by name, and their downloads."""
