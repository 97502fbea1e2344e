"""Direct calls of the vendor's library with no framework in the process."""
