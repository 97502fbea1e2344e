"""Problems that engines compute: convolutions, GEMMs, attention, in layouts and precisions."""
