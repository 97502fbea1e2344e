"""Text models: their step modules, alphabets, bundles, and how a token is chosen."""
