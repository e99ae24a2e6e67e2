"""Measuring rankings: metrics, ties, held-out splits, significance and TREC files."""
