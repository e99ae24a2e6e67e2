"""Readiness and statistics."""
