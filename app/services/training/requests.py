"""Training requests: queued here, run by a worker."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from dataclasses import asdict
from typing import Any

from app.domain.entities import Carried, Collection, Job, JobEvent, Supervision, TrainingParameters
from app.domain.entities.training import ENCODERS
from app.domain.errors import (
    InvalidFieldError,
    TrainingAlreadyRunningError,
    TrainingDataError,
    UnknownModalityError,
)
from app.domain.names import join_path
from app.domain.ports import Database, EncoderSource, UnitOfWork
from app.services.training.eligibility import (
    check_facets,
    check_labels,
    check_posteriors,
    teaches_without_labels,
)
from app.services.training.judgements import judgements_of, suffices
from app.services.training.parameters import check_parameters, learns_from_labels_only
from app.services.training.reencoding import Encoders, lacking_message

__all__ = ["TrainingParameters", "TrainingService"]

_Labels = Generator[tuple[str, ...], None, None]
_AllTraits = Generator[Carried, None, None]


class TrainingService:
    """Queues trainings and reports their progress.

    Parameters
    ----------
    database : Database
        The truth.
    encoders : EncoderSource
        Checks encoders to change to.
    """

    def __init__(self, database: Database, encoders: EncoderSource) -> None:
        self._database = database
        self._encoders = encoders

    def request(self, name: str, parameters: TrainingParameters, encoders: Encoders | None = None) -> Job:
        """Queue a retrain.

        Parameters
        ----------
        name : str
            Collection.
        parameters : TrainingParameters
            What to train.
        encoders : mapping, optional
            Options of encoders that replace those of the collection, by modality: all stored originals are
            encoded again beside the features that serve, and the new version brings its encoders along.

        Raises
        ------
        TrainingAlreadyRunningError
            If one is queued or running.
        TrainingDataError
            If it is plain from what the items carry that it would fail, or not fit into memory.
        InvalidFieldError
            If a parameter is not as described, or items have no original for a new encoder.
        """
        check_parameters(parameters)
        with self._database.read() as work, contextlib.ExitStack() as reading:
            _Check(work, work.collections.get(name), reading).check(parameters)
        values = self._values(name, parameters, encoders)
        with self._database.write() as work:
            return work.jobs.enqueue(work.collections.get(name), values)

    def request_or_join(
        self, name: str, parameters: TrainingParameters, encoders: Encoders | None = None
    ) -> Job:
        """Queue a retrain, or return the one that was requested in the same words and is not closed yet.

        Parameters and errors are those of `request`; one with other parameters is in the way as there.
        """
        try:
            return self.request(name, parameters, encoders)
        except TrainingAlreadyRunningError:
            values = json.loads(json.dumps(self._values(name, parameters, encoders)))
            last = self.jobs(name, 1)
            if not last or not last[0].state.is_open or last[0].parameters != values:
                raise
            return last[0]

    def _values(self, name: str, parameters: TrainingParameters, encoders: Encoders | None) -> dict[str, Any]:
        """Return the parameters of a job."""
        changed = self._settle(name, encoders or {})
        return asdict(parameters) | ({ENCODERS: changed} if changed else {})

    def _settle(self, name: str, encoders: Encoders) -> dict[str, dict[str, Any]]:
        """Return the settled options of the encoders that differ from those of a collection."""
        settled = {}
        for modality, options in encoders.items():
            place = f"{ENCODERS}.{modality}"
            with self._database.read() as work:
                collection = work.collections.get(name)
            if modality not in collection.modality_names:
                raise UnknownModalityError(place, modality, collection.modality_names)
            try:
                settled[modality] = self._encoders.settle(options)
            except InvalidFieldError as error:
                raise InvalidFieldError(join_path(place, error.field), error.message) from error
            encoder = self._encoders.make(settled[modality])
            with self._database.read() as work:
                if settled[modality] in [
                    now.encoder for now in collection.modalities if now.name == modality
                ]:
                    del settled[modality]
                    continue
                count, first = work.items.lacking_original(collection, modality, encoder.content_form)
            if count:
                raise InvalidFieldError(place, lacking_message(modality, count, encoder, first))
        return settled

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


class _Check:
    """Checks that the items of a collection can be learned from.

    Reading ends where they suffice: the cursors must not outlive the transaction.
    """

    def __init__(self, work: UnitOfWork, collection: Collection, reading: contextlib.ExitStack) -> None:
        self._work, self._collection, self._reading = work, collection, reading

    def check(self, parameters: TrainingParameters) -> None:
        """Raise TrainingDataError or InvalidFieldError if they cannot."""
        names, supervision = self._collection.modality_names, parameters.supervision
        if supervision.facets not in ("auto", ()):
            check_facets(names, self._read_traits(), supervision)
        try:
            if not supervision.labels:
                raise TrainingDataError("labels are left out")
            check_labels(names, self._read_labels(), parameters.alpha is None)
        except TrainingDataError as error:
            if learns_from_labels_only(parameters):
                raise
            if not (
                teaches_without_labels(self._read_traits(), supervision)
                or self._feedback_suffices(supervision)
            ):
                raise TrainingDataError(f"{error}; nor do pairs, facets or feedback suffice") from error
        if parameters.method == "semantic":
            check_posteriors(self._read_labels())

    def _feedback_suffices(self, supervision: Supervision) -> bool:
        feedback = self._work.feedback.all(self._collection) if supervision.feedback else ()
        return suffices(judgements_of(self._collection, feedback)[0])

    def _read_labels(self) -> tuple[_Labels, _Labels]:
        first, second = (
            self._reading.enter_context(
                contextlib.closing(self._work.items.training_labels(self._collection, name))
            )
            for name in self._collection.modality_names
        )
        return first, second

    def _read_traits(self) -> tuple[_AllTraits, _AllTraits]:
        first, second = (
            self._reading.enter_context(
                contextlib.closing(self._work.items.training_traits(self._collection, name))
            )
            for name in self._collection.modality_names
        )
        return first, second
