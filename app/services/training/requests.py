"""Training requests: their limits and costs, checked before anything is encoded, queued, and made again."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from app.answers import RetrainingPolicy
from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Item, Job, JobEvent
from app.domain.errors import ConflictError, InvalidFieldError, not_trainable, unknown_modality
from app.domain.names import check_storable, join_path, join_words, some_of
from app.domain.reports import ENCODERS, Objective, Supervision, TrainingParameters
from app.domain.searches import describe_others
from app.encoders.registry import EncoderRegistry
from app.services.catalogue.preparation import FEWEST_PAIRS, describe_material
from app.services.models.placement import facet_values
from app.services.training.facets import columns_of, judgements_of, suffices
from app.services.training.reencoding import Encoders, lacking_message
from solver import AT_LEAST, FLOORS, OBJECTIVES, SCALINGS, LabelledPair, can_be_compact, floors_of

Method = Literal["auto", "lrbs", "semantic", "squared", "composite"]
METHODS: tuple[str, ...] = get_args(Method)
METHODS_OF_LABELS = ("lrbs", "semantic", "squared")
"""They learn from the first label of each item, and from nothing else."""
LARGEST_SEED = 2**32 - 1
SMALLEST_ALPHA, LARGEST_ALPHA = 1e-30, 1e6
"""Range in which single precision distinguishes a penalty from zero and from infinity."""
MOST_ITERATIONS = 100_000
MOST_FACETS, LONGEST_FACET = 32, 200
"""Facets of a request, and characters of a metadata key that is one."""
LARGEST_WEIGHT = 1e6
"""Of a measure in an objective; only the ratios of weights count, and their sum must not overflow."""


def check_parameters(parameters: TrainingParameters) -> None:
    """Refuse parameters that no training could use; raises InvalidFieldError."""
    alpha, scaling = parameters.alpha, parameters.scaling
    if parameters.reason is not None:
        check_storable("reason", parameters.reason)
    if parameters.method not in METHODS:
        raise InvalidFieldError("method", f"expected {join_words(METHODS)}, got {parameters.method!r}")
    for name, value in (("alpha", alpha), ("scaling", scaling)):
        if parameters.method in ("semantic", "composite") and value is not None:
            raise InvalidFieldError(name, f"the method {parameters.method!r} has none: leave it out")
    if alpha is not None and not SMALLEST_ALPHA <= alpha <= LARGEST_ALPHA:
        raise InvalidFieldError("alpha", f"expected {SMALLEST_ALPHA} to {LARGEST_ALPHA}, got {alpha}")
    if scaling is not None and scaling not in SCALINGS:
        raise InvalidFieldError("scaling", f"expected {join_words(SCALINGS)}, got {scaling!r}")
    if not 0.0 < parameters.tol < 1.0:
        raise InvalidFieldError("tol", f"expected a number between 0 and 1, got {parameters.tol}")
    if not 1 <= parameters.max_iter <= MOST_ITERATIONS:
        raise InvalidFieldError("max_iter", f"expected 1 to {MOST_ITERATIONS}, got {parameters.max_iter}")
    if not 0 <= parameters.seed <= LARGEST_SEED:
        raise InvalidFieldError("seed", f"expected 0 to {LARGEST_SEED}, got {parameters.seed}")
    _check_supervision(parameters)
    if parameters.objective is not None:
        _check_objective(parameters, parameters.objective)


def learns_from_labels_only(parameters: TrainingParameters) -> bool:
    """Return whether the methods that were asked for learn from the first label of each item alone."""
    chosen = parameters.alpha is not None or parameters.scaling is not None
    return parameters.method in METHODS_OF_LABELS or (parameters.method == "auto" and chosen)


def _check_supervision(parameters: TrainingParameters) -> None:
    supervision = parameters.supervision
    if supervision.is_empty:
        raise InvalidFieldError("supervision", "expected something to learn from: all of it is left out")
    if not supervision.labels and learns_from_labels_only(parameters):
        method = "lrbs" if parameters.method == "auto" else parameters.method
        raise InvalidFieldError("supervision.labels", f"the method {method!r} learns from nothing else")
    if supervision.facets == "auto":
        return
    if len(supervision.facets) > MOST_FACETS:
        raise InvalidFieldError("supervision.facets", f"expected {MOST_FACETS} at most")
    for number, key in enumerate(supervision.facets):
        place = f"supervision.facets.{number}"
        if not 1 <= len(key) <= LONGEST_FACET:
            raise InvalidFieldError(place, f"expected 1 to {LONGEST_FACET} characters, got {len(key)}")
        if key in supervision.facets[:number]:
            raise InvalidFieldError(place, f"{key!r} is there twice")
        check_storable(place, key)


def _check_objective(parameters: TrainingParameters, objective: Objective) -> None:
    supervision, is_name = parameters.supervision, isinstance(objective, str)
    weights: dict[str, Any] = {objective: 1.0} if isinstance(objective, str) else dict(objective)
    floors = weights.pop(AT_LEAST, {})
    for name, share in floors.items():
        place = f"objective.{AT_LEAST}.{name}"
        if name not in FLOORS:
            raise InvalidFieldError(place, f"expected {join_words(FLOORS)}, got {name!r}")
        if not 0.0 < share <= 1.0:
            raise InvalidFieldError(place, f"expected a share above 0 and up to 1, got {share}")
        if name.startswith("recall") and not supervision.pairs:
            raise InvalidFieldError(place, f"{name!r} is that of partners: it needs supervision.pairs")
    if floors and (parameters.method not in ("auto", "composite") or learns_from_labels_only(parameters)):
        raise InvalidFieldError(f"objective.{AT_LEAST}", "the method 'composite' alone keeps floors")
    for name, weight in weights.items():
        place = "objective" if is_name else f"objective.{name}"
        if name not in OBJECTIVES:
            raise InvalidFieldError(place, f"expected {join_words(OBJECTIVES)}, got {name!r}")
        if not 0.0 <= weight <= LARGEST_WEIGHT:
            raise InvalidFieldError(place, f"expected a weight of 0 to {LARGEST_WEIGHT:g}, got {weight}")
        if name == "recall" and weight > 0.0 and not supervision.pairs:
            raise InvalidFieldError(place, "'recall' is that of partners: it needs supervision.pairs")
    if not any(weights.values()):
        raise InvalidFieldError("objective", f"expected a weight above 0 of {join_words(OBJECTIVES)}")


_MOST_BYTES = 2 << 30
"""Of a method's largest arrays together: half of the 4 GB that a retrain may take, since items, features and
libraries need the other half."""
_OPERATIONS_A_SECOND, _MOST_SECONDS = 3e10, 300.0
"""Of two cores on small arrays, and how long a method may take that was not requested by name."""
_FLOAT = 8
_SEARCHED = 3000
_TABLES, _SEARCHED_TABLES, _SQUARES, _KERNELS = 8, 40, 10, 4
"""Arrays needed at once: samples x classes for the posteriors, the same per searched candidate, classes x
classes (or features x features) for the similarity, and the kernel of all searched samples of a modality."""
_COORDINATES = 3000
"""Numbers of an item that "composite" works with: 1500 principal coordinates, and the same rotated."""
_HEADS, _OPTIMISED = 18, 40
"""Features x classes of a modality: linear classifiers of a trial and a final fit (eight of each, and
a read-out); and what one logistic regression takes, measured, where samples are too many to be made dense."""
_CLASSIFIERS, _PER_CLASSIFIER = 300, 3e4
"""Logistic regressions of a trial and a final fit, and the operations of one for each sample and class:
measured, and close to 400 features, two products and 20 steps."""
_PER_PAIR, _PER_PAIR_AND_RANK = 20, 6
"""Operations of one evaluation of the logistic loss: an exponential, and three products with factors."""
_EVALUATIONS, _EVALUATIONS_PER_RANK = 40, 4
"""Evaluations of a fit on many pairs, measured: the more ranks there are to be found, the more of them."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much there is to learn from: training items of both modalities, and classes of either."""

    n_x: int
    n_z: int
    n_classes: int

    @classmethod
    def of(cls, data: LabelledPair) -> Sizes:
        """Return the sizes of training items, all of which have a label."""
        classes = {*data.x_labels.tolist(), *data.z_labels.tolist()}
        return cls(len(data.x_labels), len(data.z_labels), len(classes))


def posteriors_too_large(
    sizes: Sizes, features: tuple[int, int] | None = None, are_sparse: tuple[bool, bool] = (False, False)
) -> str | None:
    """Return why "semantic" would not fit into memory; None where it does, or no features are known yet."""
    n_items, n_classes = sizes.n_x + sizes.n_z, sizes.n_classes
    n_searched = min(n_items, max(_SEARCHED, 2 * n_classes))
    floats = (_TABLES * n_items + _SEARCHED_TABLES * n_searched + _SQUARES * n_classes) * n_classes
    floats += _KERNELS * max(min(sizes.n_x, n_searched), min(sizes.n_z, n_searched)) ** 2
    what = f"posteriors of {n_classes} labels for each of {n_items} items"
    if features is not None:
        what += f", learned from {features[0]} and {features[1]} features,"
        for n, width, is_sparse in zip((sizes.n_x, sizes.n_z), features, are_sparse, strict=True):
            stays_sparse = is_sparse and not can_be_compact(n, width)
            floats += (_HEADS + _OPTIMISED * stays_sparse) * width * n_classes
    return _too_large(what, floats)


def composite_too_large(n_items: int, n_values: int) -> str | None:
    """Return why "composite" with these items of both modalities and values of all facets would not fit into
    memory, or None."""
    floats = n_items * (_TABLES * n_values + _COORDINATES)
    return _too_large(f"posteriors of {n_values} values of facets for each of {n_items} items", floats)


def posteriors_too_slow(sizes: Sizes) -> str | None:
    """Return why "semantic" would take too long to be tried unasked; None where it would not."""
    n_items, n_classes = sizes.n_x + sizes.n_z, sizes.n_classes
    operations = _CLASSIFIERS * _PER_CLASSIFIER * n_classes * min(n_items, 2 * _SEARCHED)
    return _excess(f"classifiers of {n_classes} labels for {n_items} items", operations)


def pairs_too_slow(sizes: Sizes, n_features: int) -> str | None:
    """Return why "lrbs" would take too long to be tried unasked, or None.
    `n_features` of the modality with fewer: neither they nor the classes are exceeded by the rank."""
    n_pairs, rank = sizes.n_x * sizes.n_z, min(n_features, sizes.n_classes)
    n_evaluations = _EVALUATIONS + _EVALUATIONS_PER_RANK * rank
    operations = n_evaluations * n_pairs * (_PER_PAIR + _PER_PAIR_AND_RANK * rank)
    return _excess(f"{n_pairs:.1e} pairs of items of {sizes.n_classes} labels", operations)


def sums_too_large(x_features: int, z_features: int) -> str | None:
    """Return why "squared" would not fit into memory, or None; features, or samples where these are fewer."""
    floats = _SQUARES * (x_features + z_features) ** 2 // 2
    return _too_large(f"sums of products of {x_features} and {z_features} features", floats)


def _too_large(what: str, floats: float) -> str | None:
    size, most = floats * _FLOAT, _MOST_BYTES
    if size <= most:
        return None
    gigabytes, allowed = size / (1 << 30), most / (1 << 30)
    return f"{what} would take about {gigabytes:.3g} GB, at most {allowed:.3g} GB are allowed"


def _excess(what: str, operations: float) -> str | None:
    seconds = operations / _OPERATIONS_A_SECOND
    if seconds <= _MOST_SECONDS:
        return None
    return (
        f"{what} would take an estimated {seconds / 60.0:.3g} minutes on two cores, "
        f"at most {_MOST_SECONDS / 60.0:g} are taken unasked"
    )


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
                label = class_of(entry)
                count[label] += 1
                if min(one[label] for one in counts) >= 2:
                    suffices.add(label)
        if len(suffices) >= 2:
            return
    for name, count in zip(names, counts, strict=True):
        if not count:
            raise not_trainable(f"no item of modality {name!r} has a label and may be trained on")
    shared = counts[0].keys() & counts[1].keys()
    if not shared:
        labels_found = " and ".join(
            f"{name!r} has {some_of([label for label, _ in count.most_common()])}"
            for name, count in zip(names, counts, strict=True)
        )
        raise not_trainable(f"no label stands on items of both modalities: {labels_found}")
    if len(counts[0].keys() | counts[1].keys()) == 1:
        raise not_trainable(
            f"all items to train on have the label {min(shared)!r}: items of a second label are needed"
        )
    if chooses and not suffices:
        raise not_trainable(
            f"too few items of each label to hold a part out for choosing alpha: at least one label needs "
            f"two items of {names[0]!r} and two of {names[1]!r}; add items, or give alpha"
        )


def check_posteriors(labels: tuple[Iterable[tuple[str, ...]], Iterable[tuple[str, ...]]]) -> None:
    """Reject labels whose posteriors would not fit into memory with ConflictError; read all of them."""
    counts = [Counter(class_of(entry) for entry in entries) for entries in labels]
    reason = posteriors_too_large(Sizes(counts[0].total(), counts[1].total(), len(counts[0] | counts[1])))
    if reason is not None:
        raise not_trainable(f"method 'semantic': {reason}; with 'auto' the method is chosen by size")


def check_facets(
    names: tuple[str, str], items: tuple[Iterable[Item], Iterable[Item]], supervision: Supervision
) -> None:
    """Raise InvalidFieldError for named facets that none of the first 5000 items of each modality has."""
    for name, side in zip(names, items, strict=True):
        seen = list(itertools.islice(side, _MOST_SEEN))
        unknown = [
            key for key in supervision.facets if not any(facet_values(item.metadata, key) for item in seen)
        ]
        if unknown and len(seen) < _MOST_SEEN:
            key = unknown[0]
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
    return None in columns_of(seen, supervision).values()


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
            values = json.loads(json.dumps(self._values(name, replace(parameters, reason=None), encoders)))
            for last in self.jobs(name, 1):
                if last.state.is_open and {**last.parameters, "reason": None} == {**values, "reason": None}:
                    return last
            raise

    def _values(self, name: str, parameters: TrainingParameters, encoders: Encoders | None) -> dict[str, Any]:
        """Return the parameters of a job."""
        changed = self._settle(name, encoders or {})
        return asdict(parameters) | ({ENCODERS: changed} if changed else {})

    def _settle(self, name: str, encoders: Encoders) -> dict[str, dict[str, Any]]:
        """Return the settled options of the encoders that differ from those of a collection."""
        settled = {}
        for modality, options in encoders.items():
            place = f"{ENCODERS}.{modality}"
            collection = self._database.get_collection(name)
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

    def set_policy(self, name: str, policy: RetrainingPolicy) -> Collection:
        """Say when a collection is trained by itself; raises CollectionNotFoundError."""
        with self._database.write() as work:
            work.collections.set_retraining(work.collections.lock(name), policy)
            return work.collections.get(name)

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
                raise not_trainable("labels are left out")
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
                raise not_trainable(f"{error}; nor does anything else suffice: {material}") from error
        first_ones = [len(list(itertools.islice(side, FEWEST_PAIRS))) for side in read(traits)]
        few = [name for name, count in zip(names, first_ones, strict=True) if count < FEWEST_PAIRS]
        if few:
            material = describe_material(work, collection)
            raise not_trainable(f"too few items of {join_words(map(repr, few), 'and')}: {material}")
        if parameters.method == "semantic":
            check_posteriors(read(labels))
        recalled = [name for name in floors_of(parameters.objective or "map") if name.startswith("recall")]
        if recalled:
            first, second = ({item.pair_id for item in side if item.pair_id} for side in read(traits))
            if len(first & second) < FEWEST_PAIRS:
                needed = f"it needs {FEWEST_PAIRS} pairs (the same pair_id on two items)"
                message = f"{recalled[0]!r} is that of partners: {needed}, there are {len(first & second)}"
                raise InvalidFieldError(f"objective.{AT_LEAST}.{recalled[0]}", message)
