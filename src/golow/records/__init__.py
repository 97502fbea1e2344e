"""Frozen records that pass between rooms, and errors."""
