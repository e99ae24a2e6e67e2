"""Low-rank bilinear similarities: the estimator, its problem, its path, and how alpha is chosen."""
