"""Training requests: checked before anything is encoded, queued, and made again for damaged bundles."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Item, Job, JobEvent
from app.domain.errors import (
    CollectionNotFoundError,
    ConflictError,
    DamagedBundleError,
    InvalidFieldError,
    ServiceError,
    unknown_modality,
)
from app.domain.names import join_path, join_words, some_of
from app.domain.reports import ENCODERS, Supervision, TrainingParameters
from app.domain.searches import describe_others
from app.encoders.registry import EncoderRegistry
from app.services.catalogue.preparation import FEWEST_PAIRS, describe_material
from app.services.models.model_bundles import ModelBundles
from app.services.models.placement import facet_values
from app.services.storage.pacing import Round
from app.services.training.costs import Sizes, posteriors_too_large
from app.services.training.facets import facet_keys, judgements_of, suffices
from app.services.training.parameters import check_parameters, learns_from_labels_only
from app.services.training.reencoding import Encoders, lacking_message
from solver import AT_LEAST, floors_of

_MOST_SEEN = 5000  # items of a modality in which facets are looked for: the training looks at all of them


def class_of(labels: Sequence[str]) -> str:
    """Return the class of an item that is trained on: the first of its labels."""
    return labels[0]


def check_labels(
    names: tuple[str, str], labels: tuple[Iterable[tuple[str, ...]], Iterable[tuple[str, ...]]], chooses: bool
) -> None:
    """Reject labels that no model can be learned from with ConflictError; stop reading as soon as they
    suffice. `chooses` if a part of each class is held out to choose the penalty weight."""
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    suffices: set[str] = set()
    for entries in itertools.zip_longest(*labels):
        for count, entry in zip(counts, entries, strict=True):
            if entry is not None:
                count[class_of(entry)] += 1
        suffices.update(
            label
            for label in (class_of(entry) for entry in entries if entry is not None)
            if min(count[label] for count in counts) >= 2
        )
        if len(suffices) >= 2:
            return
    for name, count in zip(names, counts, strict=True):
        if not count:
            raise ConflictError(
                "training-data", f"no item of modality {name!r} has a label and may be trained on"
            )
    shared = counts[0].keys() & counts[1].keys()
    if not shared:
        labels_found = " and ".join(
            f"{name!r} has {some_of([label for label, _ in count.most_common()])}"
            for name, count in zip(names, counts, strict=True)
        )
        raise ConflictError("training-data", f"no label stands on items of both modalities: {labels_found}")
    if len(counts[0].keys() | counts[1].keys()) == 1:
        raise ConflictError(
            "training-data",
            f"all items to train on have the label {min(shared)!r}: items of a second label are needed",
        )
    if chooses and not suffices:
        raise ConflictError(
            "training-data",
            f"too few items of each label to hold a part out for choosing alpha: at least one label needs "
            f"two items of {names[0]!r} and two of {names[1]!r}; add items, or give alpha",
        )


def check_posteriors(labels: tuple[Iterable[tuple[str, ...]], Iterable[tuple[str, ...]]]) -> None:
    """Reject labels whose posteriors would not fit into memory with ConflictError; read all of them."""
    counts = [Counter(class_of(entry) for entry in entries) for entries in labels]
    reason = posteriors_too_large(Sizes(counts[0].total(), counts[1].total(), len(counts[0] | counts[1])))
    if reason is not None:
        raise ConflictError(
            "training-data", f"method 'semantic': {reason}; with 'auto' the method is chosen by size"
        )


def check_facets(
    names: tuple[str, str], items: tuple[Iterable[Item], Iterable[Item]], supervision: Supervision
) -> None:
    """Raise InvalidFieldError for facets that none of the first 5000 items of each modality has."""
    for name, side in zip(names, items, strict=True):
        unknown = dict.fromkeys(key for key in supervision.facets if supervision.facets != "auto")
        seen = list(itertools.islice(side, _MOST_SEEN)) if unknown else []
        for key in [key for key in unknown if any(facet_values(item.metadata, key) for item in seen)]:
            del unknown[key]
        if unknown and len(seen) < _MOST_SEEN:
            key = next(iter(unknown))
            place = f"supervision.facets.{supervision.facets.index(key)}"
            others = describe_others(key, (other for item in seen for other in item.metadata), "keys")
            raise InvalidFieldError(
                place, f"no training item of modality {name!r} has the metadata key {key!r}{others}"
            )


def teaches_without_labels(items: tuple[Iterable[Item], Iterable[Item]], supervision: Supervision) -> bool:
    """Return whether pairs or facets suffice; stop reading as soon as they do. Where every item has the same
    label, by which all match, pairs do not."""
    pair_ids: tuple[set[str], set[str]] = (set(), set())
    seen: tuple[list[Item], list[Item]] = ([], [])
    n_pairs = 0
    classes: set[tuple[str, ...]] = set() if supervision.labels else {()}
    for entries in itertools.zip_longest(*items):
        for side, (own, other) in enumerate((pair_ids, pair_ids[::-1])):
            item = entries[side]
            if item is None:
                continue
            if len(seen[side]) < _MOST_SEEN:
                seen[side].append(item)
            classes.add(item.labels[:1])
            if supervision.pairs and item.pair_id is not None and item.pair_id not in own:
                own.add(item.pair_id)
                n_pairs += item.pair_id in other
        if n_pairs >= FEWEST_PAIRS and (len(classes) > 1 or () in classes):
            return True
    return bool(facet_keys(seen, supervision))


_logger = logging.getLogger(__name__)
__all__ = ["TrainingParameters", "TrainingService"]

_Row = TypeVar("_Row")
_OfBoth = tuple[Generator[_Row, None, None], Generator[_Row, None, None]]


@dataclass(eq=False)
class TrainingService:
    """Queues trainings and reports their progress."""

    _database: Database
    _encoders: EncoderRegistry

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
        few = [name for name, side in zip(names, read(traits), strict=True) if not _has_enough(side)]
        if few:
            material = describe_material(work, collection)
            raise ConflictError(
                "training-data", f"too few items of {join_words(map(repr, few), 'and')}: {material}"
            )
        if parameters.method == "semantic":
            check_posteriors(read(labels))
        recalled = [name for name in floors_of(parameters.objective or "map") if name.startswith("recall")]
        if recalled:
            first, second = ({item.pair_id for item in side if item.pair_id} for side in read(traits))
            if len(first & second) < FEWEST_PAIRS:
                needed = f"it needs {FEWEST_PAIRS} pairs (the same pair_id on two items)"
                message = f"{recalled[0]!r} is that of partners: {needed}, there are {len(first & second)}"
                raise InvalidFieldError(f"objective.{AT_LEAST}.{recalled[0]}", message)


def _has_enough(items: Iterable[Item]) -> bool:
    return len(list(itertools.islice(items, FEWEST_PAIRS))) == FEWEST_PAIRS


@dataclass(eq=False)
class BundleRepair:
    """Asks for a retrain where the active version's bundle is damaged, if its files are this database's."""

    # Processes that hold the version go on serving it; in others an earlier one stands in for it
    # (`app.services.serving.snapshots`). No other version is made the active one: people decide that.

    _database: Database
    _bundles: ModelBundles
    _training: TrainingService
    _owns_files: Callable[[], bool]
    _names: list[str] = field(default_factory=list, init=False)

    def go_on(self, time_left: Round) -> bool:
        """Ask for retrains with the parameters of the damaged versions, one collection after the other;
        return whether all were looked at."""
        # Later rounds go on; what keeps one from being looked at is logged, and it comes again.
        if not self._owns_files():
            return True
        if not self._names:
            with self._database.read() as work:
                listed = work.collections.list()
            self._names = [one.name for one in listed if one.active_version is not None]
        failures: list[str] = []

        def look_at_next() -> bool:
            if self._names:
                name = self._names.pop(0)
                try:
                    self._request_repair(name)
                except (ServiceError, OSError) as error:
                    _logger.warning("%s: damage is looked for later: %s", name, error)
                    failures.append(name)
            return not self._names

        time_left.finish(look_at_next)
        self._names += failures
        return not self._names

    def _request_repair(self, name: str) -> None:
        try:
            with self._database.read() as work:
                collection = work.collections.get(name)
                if collection.active_version is None:
                    return
                version = work.models.get(collection, collection.active_version)
        except CollectionNotFoundError:  # deleted in the meantime
            return
        try:
            self._bundles.check(version)
            return
        except DamagedBundleError as error:
            _logger.error("%s, version %d: %s: training it again", collection.name, version.version, error)
        try:
            self._training.request(collection.name, version.report.parameters)
        except ConflictError as error:
            _logger.error("%s: %s", collection.name, error)
