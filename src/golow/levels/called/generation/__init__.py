"""`golow.compile(..., generation=...)`: a language model that writes text."""
