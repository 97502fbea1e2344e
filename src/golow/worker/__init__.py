"""The worker protocol, both ends of it: a process that runs one level."""
