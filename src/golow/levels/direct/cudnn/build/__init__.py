"""The builder, which turns a graph into the steps of a plan."""
