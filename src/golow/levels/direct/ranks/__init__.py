"""Processes that train one network together: how they exchange messages, and the mean of their
arrays."""
