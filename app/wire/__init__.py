"""The server's own end of the wire: which connections are kept, and what counts as a request."""
