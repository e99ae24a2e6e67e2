"""The server's side of each TCP connection: limits on open connections, and strict HTTP/1.1 parsing."""
