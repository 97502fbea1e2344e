"""Program 4: where a step's time and memory go, by what the host and the device did."""
