"""A GPU without a framework: its memory, a stream, and a stopwatch of its events."""
