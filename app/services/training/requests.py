"""Training requests: queued here, run by a worker."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import Any, TypeVar

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Job, JobEvent
from app.domain.errors import ConflictError, InvalidFieldError, unknown_modality
from app.domain.names import join_path
from app.domain.reports import ENCODERS, TrainingParameters
from app.encoders.registry import EncoderRegistry
from app.services.catalogue.preparation import describe_material
from app.services.training.eligibility import (
    check_facets,
    check_labels,
    check_posteriors,
    teaches_without_labels,
)
from app.services.training.judgements import judgements_of, suffices
from app.services.training.parameters import check_parameters, learns_from_labels_only
from app.services.training.reencoding import Encoders, lacking_message

_logger = logging.getLogger(__name__)
__all__ = ["TrainingParameters", "TrainingService"]

_Row = TypeVar("_Row")
_OfBoth = tuple[Generator[_Row, None, None], Generator[_Row, None, None]]


class TrainingService:
    """Queues trainings and reports their progress."""

    def __init__(self, database: Database, encoders: EncoderRegistry) -> None:
        self._database = database
        self._encoders = encoders

    def request(self, name: str, parameters: TrainingParameters, encoders: Encoders | None = None) -> Job:
        """Queue a retrain; raises InvalidFieldError, and ConflictError if one is open or it
        would plainly fail."""
        # With options of other encoders all stored originals are encoded again beside the features that
        # serve, and the new version brings its encoders along.
        check_parameters(parameters)
        with self._database.read() as work:
            _check_items(work, work.collections.get(name), parameters)
        values = self._values(name, parameters, encoders)
        with self._database.write() as work:
            job = work.jobs.enqueue(work.collections.get(name), values)
        _logger.info("job %s: a retrain of %s was requested", job.id, name)
        return job

    def request_or_join(
        self, name: str, parameters: TrainingParameters, encoders: Encoders | None = None
    ) -> Job:
        """Queue a retrain, or return the one that was requested in the same words and is not closed yet.
        One with other parameters is in the way, as for `request`."""
        try:
            return self.request(name, parameters, encoders)
        except ConflictError as error:
            if error.code != "training-already-running":
                raise
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
                raise unknown_modality(place, modality, collection.modality_names)
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
        """Return a job; raises NotFoundError."""
        with self._database.read() as work:
            return work.jobs.get(job_id)

    def jobs(self, name: str, limit: int) -> list[Job]:
        """Return the last jobs of a collection, newest first; raises CollectionNotFoundError."""
        with self._database.read() as work:
            return work.jobs.recent(work.collections.get(name), limit)

    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop; raises NotFoundError."""
        with self._database.write() as work:
            job = work.jobs.request_cancel(job_id)
        _logger.info("job %s: its end was requested", job_id)
        return job

    def held_by(self, worker: str) -> Job | None:
        """Return the job that a worker runs, by the worker's name."""
        with self._database.read() as work:
            return work.jobs.held_by(worker)

    def events(self, job_id: str, after: int, limit: int) -> tuple[Job, list[JobEvent]]:
        """Return a job and what happened to it after the event of that number, oldest first.
        Both are of one moment: of a closed job there are no later events than these and their followers."""
        with self._database.read() as work:
            return work.jobs.get(job_id), work.jobs.events(job_id, after, limit)


def _check_items(work: UnitOfWork, collection: Collection, parameters: TrainingParameters) -> None:
    """Raise ConflictError or InvalidFieldError if the items of a collection cannot be learned from."""
    names, supervision = collection.modality_names, parameters.supervision
    # Reading ends where the items suffice: the cursors must not outlive the transaction.
    with contextlib.ExitStack() as reading:

        def read(columns: Callable[[Collection, str], Generator[_Row, None, None]]) -> _OfBoth[_Row]:
            first, second = (
                reading.enter_context(contextlib.closing(columns(collection, name))) for name in names
            )
            return first, second

        labels, traits = work.items.training_labels, work.items.training_traits
        if supervision.facets not in ("auto", ()):
            check_facets(names, read(traits), supervision)
        try:
            if not supervision.labels:
                raise ConflictError("training-data", "labels are left out")
            check_labels(names, read(labels), parameters.alpha is None)
        except ConflictError as error:
            if learns_from_labels_only(parameters):
                raise
            if not (
                teaches_without_labels(read(traits), supervision)
                or (
                    supervision.feedback
                    and suffices(judgements_of(collection, work.feedback.all(collection))[0])
                )
            ):
                material = describe_material(work, collection)
                raise ConflictError(
                    "training-data", f"{error}; nor does anything else suffice: {material}"
                ) from error
        if parameters.method == "semantic":
            check_posteriors(read(labels))
