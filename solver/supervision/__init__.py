"""Which pairs of samples are similar: by class, by several labels, by row, or by a list."""
