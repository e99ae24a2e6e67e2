"""Engines that other programs maintain, for galleries and encoding too large for one process."""
