"""Engines that other programs maintain, for galleries too large for one process."""
