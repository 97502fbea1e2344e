"""Settings left at their default: their cost here, and the gain of changing each one."""
