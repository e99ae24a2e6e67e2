"""Measuring tools that are no command of the package."""
