"""Encoders: raw pictures, texts and vectors to features."""
