"""PaddlePaddle: the graph as the source of its dynamic graph, or of a static one."""
