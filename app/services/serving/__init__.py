"""Searching: snapshots of collections, their galleries, and queries against them."""
