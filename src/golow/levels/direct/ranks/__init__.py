"""Processes that train one network together: where they meet, and the mean of their arrays."""
