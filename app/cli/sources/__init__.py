"""Where items come from: each source is a module that yields rows."""
