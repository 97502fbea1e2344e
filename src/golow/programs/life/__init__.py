"""Program 5: what a level costs over its life, from the start of a process to its end."""
