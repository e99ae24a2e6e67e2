"""Dense and sparse matrices: types, checks, centred products, and the row space of samples."""
