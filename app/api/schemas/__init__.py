"""Wire models."""
