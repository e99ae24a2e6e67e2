"""Putting a worker together from the services."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from app.bootstrap import Services, sweep_checkpoints
from app.worker.child import train_in_child
from app.worker.chores import Chore, whole
from app.worker.worker import Trainer, Worker, WorkerLimits

_SELDOM_SECONDS = 3600.0  # between chores that go through all files or rows
_SOMETIMES_SECONDS = 300.0  # between chores that go through the rows of what was written meanwhile
_OFTEN_SECONDS = 60.0  # between chores that find little to do, or that somebody waits for


def make_worker(
    services: Services,
    should_stop: Callable[[], bool] = lambda: False,
    train: Trainer | None = None,
    poll_seconds: float = 0.5,
) -> Worker:
    """Return a worker over a set of services, which trains in a child process unless `train` is given."""
    # `should_stop` is asked between jobs and during them; once it is true the worker ends, and gives its job
    # back. Half a second between two looks for a job is short beside a training, and costs the database one
    # indexed query.
    settings = services.settings
    if train is None:
        train = partial(train_in_child, settings.model_dump(mode="json"), settings.max_training_seconds)
    limits = WorkerLimits(
        lease_seconds=settings.lease_seconds,
        job_attempts=settings.job_attempts,
        retry_seconds=settings.job_retry_seconds,
        stop_seconds=settings.shutdown_seconds,
        poll_seconds=poll_seconds,
    )
    return Worker(
        services.database,
        services.training,
        services.versions,
        _maintenance(services),
        train,
        limits,
        should_stop,
    )


def _maintenance(services: Services) -> Sequence[Chore]:
    sweeper = services.engine_sweeper
    of_engine = (
        []
        if sweeper is None
        else [
            Chore("sweeping the engine", whole(sweeper.sweep), _SELDOM_SECONDS),
            Chore("purging the engine", whole(sweeper.purge), _SOMETIMES_SECONDS),
        ]
    )
    return (
        *of_engine,
        Chore("noting progress", whole(services.ownership.note_progress), _OFTEN_SECONDS),
        Chore("removing what was deleted", services.removal.go_on, _OFTEN_SECONDS),
        Chore("cleaning up after imports", services.imports.clean_up, _OFTEN_SECONDS),
        Chore("sweeping", services.garbage_collector.go_on, _SELDOM_SECONDS),
        Chore("sweeping checkpoints", whole(partial(sweep_checkpoints, services.settings)), _SELDOM_SECONDS),
        Chore("purging tombstones", services.tombstones.purge, _SELDOM_SECONDS),
        Chore("looking for damage", services.repair.go_on, _SELDOM_SECONDS),
    )
