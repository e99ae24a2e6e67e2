"""The `lrbs` command."""
