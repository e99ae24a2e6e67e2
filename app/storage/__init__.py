"""Files: pictures by content, model bundles by name."""
