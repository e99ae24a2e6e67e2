"""The retrieval service and its commands."""
