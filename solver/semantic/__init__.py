"""Bilinear similarity of class posteriors, which an ensemble of classifiers computes for each modality."""
