"""Text generation at every level: proved, then timed."""
