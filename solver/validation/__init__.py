"""Errors, and the rules that parameters are checked by."""
