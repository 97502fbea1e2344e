"""Text generation as a table, a figure and rows."""
