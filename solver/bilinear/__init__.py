"""Low-rank bilinear similarities: the estimator, its problem, its path, and the choice of alpha."""
