"""Reports: tables, figures and pages, from records alone."""
