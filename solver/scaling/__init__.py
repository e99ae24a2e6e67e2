"""Preparing features: scaling, for the service and as an estimator, and explicit feature maps of kernels."""
