"""Load tests of levels: which level holds a latency at which rate, by MLPerf's LoadGen."""
