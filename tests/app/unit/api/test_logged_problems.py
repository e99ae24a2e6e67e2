"""What the log says of problems that no other line explains."""

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.api import problems
from app.api.log_intervals import LogIntervals
from app.domain.errors import OverloadedError, ServiceError, VectorEngineUnavailableError


def test_why_an_engine_cannot_be_used_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "_log_intervals", LogIntervals())
    faults: list[ServiceError] = [
        VectorEngineUnavailableError("it is away"),
        OverloadedError("too many"),
        VectorEngineUnavailableError("it is away"),
    ]
    application = FastAPI()
    problems.install(application)

    @application.get("/")
    def fail() -> None:
        raise faults.pop()

    client = TestClient(application)
    assert [client.get("/").status_code for _ in range(3)] == [503] * 3
    assert [r.getMessage() for r in caplog.records if r.name == problems.__name__] == [
        "the vector engine cannot be used: it is away"
    ]
