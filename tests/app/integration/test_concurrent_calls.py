"""The same call by several at the same time: one of them does it, the others are told what is so by then."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy

from app.domain.errors import ServiceError
from app.domain.names import Scope
from app.services.training.requests import TrainingParameters
from tests.app.integration.conftest import PARAMETERS

CALLERS = 6


def outcomes(pairs: Any, call: Callable[[], object]) -> Counter[str]:
    """Count how the call ends for callers that all found everything as it was before."""

    def outcome() -> str:
        try:
            call()
        except ServiceError as error:
            return error.code
        return "done"

    engine: sqlalchemy.Engine = pairs.services.database.engine
    with ThreadPoolExecutor(CALLERS) as pool:
        with engine.begin() as holder:
            # Nobody can write: on PostgreSQL all look first, then wait for these rows.
            for table in ("collections", "api_keys", "jobs"):
                holder.exec_driver_sql(f"UPDATE {table} SET id = id")
            calls = [pool.submit(outcome) for _ in range(CALLERS)]
            time.sleep(1.0)
        return Counter(call.result(timeout=60) for call in calls)


def test_one_caller_deletes_a_collection(either: Any) -> None:
    either.fill("a")
    found = outcomes(either, lambda: either.services.catalogue.delete_collection("a"))
    assert found == {"done": 1, "collection-not-found": CALLERS - 1}


def test_one_caller_deletes_an_item(either: Any) -> None:
    either.fill("a")
    found = outcomes(either, lambda: either.services.catalogue.delete_item("a", "x00"))
    assert found == {"done": 1, "item-not-found": CALLERS - 1}


def test_one_caller_creates_an_item(either: Any) -> None:
    either.fill("a")
    new = either.item("x", "new", either.data.X[0])
    found = outcomes(either, lambda: either.services.catalogue.add_items("a", [new]))
    assert found == {"done": 1, "item-exists": CALLERS - 1}


@pytest.mark.filterwarnings("ignore:DELETE statement on table:sqlalchemy.exc.SAWarning")  # as in production
def test_one_caller_revokes_a_key(either: Any) -> None:
    key, _ = either.services.access.create(Scope.SEARCH)
    found = outcomes(either, lambda: either.services.access.revoke(key.id))
    assert found == {"done": 1, "key-not-found": CALLERS - 1}


def test_one_caller_asks_for_a_retrain_and_all_may_cancel_it(either: Any) -> None:
    either.fill("a")
    found = outcomes(either, lambda: either.services.training.request("a", PARAMETERS))
    assert found == {"done": 1, "training-already-running": CALLERS - 1}
    (job,) = either.services.training.jobs("a", 10)
    assert outcomes(either, lambda: either.services.training.cancel(job.id)) == {"done": CALLERS}
    _, events = either.services.training.events(job.id, 0, 100)
    assert [event.data["state"] for event in events] == ["queued", "cancelled"]


def test_one_caller_rolls_back_and_a_version_is_activated_once(either: Any) -> None:
    either.fill("a")
    for seed in (0, 1):
        either.train("a", TrainingParameters(alpha=1e-3, scaling="standard", max_iter=20, seed=seed))
    versions = either.services.versions
    found = outcomes(either, lambda: versions.roll_back("a", "test"))
    assert found == {"done": 1, "active-version-conflict": CALLERS - 1}
    assert outcomes(either, lambda: versions.activate("a", 2, "test")) == {"done": CALLERS}
    assert [entry.version for entry in versions.history("a", 10)] == [2, 1, 2, 1]


def test_a_list_of_jobs_takes_as_many_queries_as_one_job(either: Any) -> None:
    either.fill("a")
    statements: list[str] = []

    def listed(count: int) -> int:
        while len(either.services.training.jobs("a", 100)) < count:
            either.services.training.cancel(either.services.training.request("a", PARAMETERS).id)
        statements.clear()
        assert len(either.services.training.jobs("a", 100)) == count
        return len(statements)

    own = threading.get_ident()  # threads in the background ask the database, too

    def note(*given: Any) -> None:
        if threading.get_ident() == own:
            statements.append(given[2])

    sqlalchemy.event.listen(either.services.database.engine, "before_cursor_execute", note)
    assert listed(1) == listed(12)
