"""`golow.compile(..., generation=...)`: a language model that writes text, over plans that share a cache."""
