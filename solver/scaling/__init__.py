"""Scaling of features: what the service needs, and the same as an estimator of scikit-learn."""
