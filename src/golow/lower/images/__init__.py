"""Passes that compute lines and volumes as images."""
