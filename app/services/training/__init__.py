"""Training: requests, choice of a method, fitting, evaluation and publication."""
