"""Retrains that the look for damaged models asks for."""

from app.bootstrap import Services
from app.services.storage.pacing import Round


def request_repairs(services: Services) -> list[str]:
    """Look at all collections; return those for which a retrain was asked."""
    before = _jobs(services)
    assert services.repair.go_on(Round())
    return sorted(name for name, job in _jobs(services) - before)


def _jobs(services: Services) -> set[tuple[str, str]]:
    with services.database.read() as work:
        return {
            (collection.name, job.id)
            for collection in work.collections.list()
            for job in work.jobs.recent(collection, 100)
        }
