"""HTTP routes: wire models in, services called, wire models out."""
