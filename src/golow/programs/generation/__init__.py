"""Text generation at every level: checked, then timed."""
