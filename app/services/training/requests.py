"""Training requests: queued here, run by a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import asdict

from app.domain.entities import Job, JobEvent, TrainingParameters
from app.domain.ports import Database
from app.services.training.eligibility import check_labels, check_posteriors
from app.services.training.parameters import check_parameters

__all__ = ["TrainingParameters", "TrainingService"]


class TrainingService:
    """Queues trainings and reports their progress.

    Parameters
    ----------
    database : Database
        The truth.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def request(self, name: str, parameters: TrainingParameters) -> Job:
        """Queue a retrain.

        Parameters
        ----------
        name : str
            Collection.
        parameters : TrainingParameters
            What to train.

        Raises
        ------
        TrainingAlreadyRunningError
            If one is queued or running.
        TrainingDataError
            If it is plain from the items' labels that it would fail, or not fit into memory.
        InvalidFieldError
            If a parameter is not as described.
        """
        check_parameters(parameters)
        with self._database.read() as work, contextlib.ExitStack() as reading:
            collection = work.collections.get(name)

            def labels() -> tuple[
                Generator[tuple[str, ...], None, None], Generator[tuple[str, ...], None, None]
            ]:
                # Reading ends where the labels suffice: the cursors must not outlive the transaction.
                first, second = (
                    reading.enter_context(contextlib.closing(work.items.training_labels(collection, name)))
                    for name in collection.modality_names
                )
                return first, second

            check_labels(collection.modality_names, labels(), parameters.alpha is None)
            if parameters.method == "semantic":
                check_posteriors(labels())
        with self._database.write() as work:
            return work.jobs.enqueue(collection, asdict(parameters))

    def job(self, job_id: str) -> Job:
        """Return a job; raises JobNotFoundError."""
        with self._database.read() as work:
            return work.jobs.get(job_id)

    def jobs(self, name: str, limit: int) -> list[Job]:
        """Return the last jobs of a collection, newest first; raises CollectionNotFoundError."""
        with self._database.read() as work:
            return work.jobs.recent(work.collections.get(name), limit)

    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop; raises JobNotFoundError."""
        with self._database.write() as work:
            return work.jobs.request_cancel(job_id)

    def events(self, job_id: str, after: int, limit: int) -> tuple[Job, list[JobEvent]]:
        """Return a job and what happened to it after the event of that number, oldest first.

        Both are of one moment: of a closed job there are no later events than these and their followers.
        """
        with self._database.read() as work:
            return work.jobs.get(job_id), work.jobs.events(job_id, after, limit)
