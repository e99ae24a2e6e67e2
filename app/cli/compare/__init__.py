"""`lrbs compare`: every method on sets of data, with a report."""

from app.cli.compare.command import compare

__all__ = ["compare"]
