"""Closing services of which other tests of the process are not to hear any more."""

import threading

from app.bootstrap import Services
from app.services.serving import engine_galleries, reloads, snapshots
from tests.app.waiting import wait_for

BACKGROUND = (
    reloads.THREAD_NAME,
    snapshots.MERGE_THREAD_NAME,
    "save-galleries",
    engine_galleries.COUNT_THREAD_NAME,
    engine_galleries.WATCH_THREAD_NAME,
)


def close(services: Services) -> None:
    """Close the database once the background has ended: a connection returned later would stay open."""
    for thread in threading.enumerate():
        if thread.name in BACKGROUND:
            thread.join(30.0)
    engine = services.database.engine
    wait_for(lambda: engine.pool.checkedout() == 0)
    engine.dispose()
