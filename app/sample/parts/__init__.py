"""Things that the scenes are made of."""
