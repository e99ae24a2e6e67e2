"""Entities, errors and ports: what the service is about, free of any library that carries it."""
