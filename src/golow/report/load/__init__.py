"""Load tests as tables, figures, sections of a page and rows."""
