"""Plans: steps over buffers with offsets in one arena."""
