"""What the log says of problems that no other line explains."""

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.api import problems
from app.domain.errors import ServiceError, VectorEngineUnavailableError, overload


def test_why_an_engine_cannot_be_used_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    faults: list[ServiceError] = [overload("too many"), VectorEngineUnavailableError("it is away")]
    application = FastAPI()
    problems.install(application)

    @application.get("/")
    def fail() -> None:
        raise faults.pop()

    client = TestClient(application)
    assert [client.get("/").status_code for _ in range(2)] == [503] * 2
    assert [r.getMessage() for r in caplog.records if r.name == problems.__name__] == [
        "the vector engine cannot be used: it is away"
    ]
