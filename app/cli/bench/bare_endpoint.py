"""A bare endpoint to compare searches with: the same framework, parser, event loop, body and answer."""
# Nothing is searched: every request gets the same ten hits. Run as a module it serves on a free port of this
# machine, whose address it prints, until it is interrupted.

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI

from app.answers import Hit, SearchResult
from app.api.schemas.searches import SearchIn

PATH = "/search"
_HITS = 10


def create_bare() -> FastAPI:
    """Return an application with one endpoint, as the framework's documentation writes it."""
    application = FastAPI(openapi_url=None)
    hits = [
        Hit(
            id=f"item-{number:08d}",
            rank=number + 1,
            score=12.345678 - number / 7,
            probability=0.9 - number / 70,
            labels=[f"class {number}"],
            metadata={"split": "test", "number": number},
        )
        for number in range(_HITS)
    ]
    answer = SearchResult(model_version=1, index_revision=1, exact=True, took_ms=0.1, notices=[], hits=hits)

    @application.post(PATH)
    async def search(query: SearchIn) -> SearchResult:
        return answer

    return application


def _serve() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as bound:
        sys.stdout.write(f"http://127.0.0.1:{bound.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            create_bare(), loop="uvloop", http="httptools", ws="none", log_config=None, access_log=False
        )
        uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    _serve()
