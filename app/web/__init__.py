"""The search page: one static document that calls the public API like any other client."""
