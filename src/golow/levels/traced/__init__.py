"""Parts shared by levels that write the captured graph as the source of another framework's
program: the writer, the passes before it, and the worker that runs the source."""
