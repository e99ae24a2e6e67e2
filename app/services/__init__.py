"""Use cases: what the service does, over the domain's ports."""
