"""What lowering does to a model, which level supports it, and what bounds it."""
