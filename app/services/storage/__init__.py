"""Keeping database and data folder consistent: ownership, deletion, garbage collection."""
