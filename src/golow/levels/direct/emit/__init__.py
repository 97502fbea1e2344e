"""C++ projects of plans: what they share, whatever library they call."""
