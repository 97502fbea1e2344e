"""Load tests of levels with MLPerf's LoadGen: the rate at which each level meets a latency
limit."""
