"""The server's side of each TCP connection: limits on open connections, and strict HTTP/1.1 parsing."""
# Event loop and parser are those of C libraries (uvloop, httptools) under uvicorn. This package adds what
# uvicorn lacks: fair limits on connections, deadlines for incomplete requests, and rejection of requests that
# two parsers could read differently (request smuggling).
