"""Similarities of class posteriors: an ensemble of kernel classifiers on each side, and M between."""
