"""Hugging Face and timm models by name, and their downloads."""
