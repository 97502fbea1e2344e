"""Frames and instructions between a layer's call and the vendor's routine, at every level."""
