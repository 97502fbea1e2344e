"""The driver's figures of a GPU: its state, memory, clocks and energy."""
