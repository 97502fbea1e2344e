// No kernel: the source of one is given as code.
