"""Passes on views: what sinks, meets another view, or vanishes."""
