"""Model bundles: written, checked and loaded, with the texts that a loaded model was just asked."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from app.answers import Notice
from app.db.session import UnitOfWork
from app.domain.entities import Collection, Features, Item, Matrix, Modality, ModelVersion, ShownItem, Vector
from app.domain.errors import DamagedBundleError
from app.domain.ports import GalleryIndex
from app.domain.reports import TrainingReport
from app.encoders.registry import EncoderRegistry
from app.index import ExactIndex, load_index, save_index
from app.services.models.originals import Originals, features_for
from app.storage.pictures_and_bundles import Bundles
from solver import ArtifactError, Projector, SpacePart, load_projector, save_projector

UNTRAINED = 0
"""Number of the version that serves before any was trained."""
LONGEST_TEXT = 1000
"""Characters of a text that is kept, and of one that is encoded at once: people type less."""
_MOST_TEXTS = 512
"""Of both modalities: about a megabyte."""


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedQuery:
    """A projected query, of shape (1, rank), and what is to be said of its words, of which some are known if
    it `can_match`; `is_like` anything that was learned from."""

    projected: Matrix
    notices: tuple[Notice, ...] = ()
    can_match: bool = True
    is_like: bool = True
    before_emphasis: Matrix | None = None  # what it was then
    judged: Matrix | None = None  # what probabilities are of, where they are not of what is ranked by


class RecentTexts:
    """The last texts of one model version, by the modalities of a search and to the letter: encoders differ
    in what counts, and galleries in the words that items have. They are never those of another version."""

    def __init__(self) -> None:
        self.text_bytes: dict[str, float] = {}
        """By modality: the longest mean length of the texts that one answer showed."""
        self._queries: dict[tuple[str, str, str], tuple[ProjectedQuery, int | None]] = {}
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str, str], revision: int) -> ProjectedQuery | None:
        """Return a text that was asked (source, target, text), unless it depends on what items had at another
        revision; it is the newest one again."""
        if len(key[-1]) > LONGEST_TEXT:
            return None
        with self._lock:
            query, its_revision = self._queries.pop(key, (None, None))
            if query is None or its_revision not in (None, revision):
                return None
            self._queries[key] = query, its_revision
        return query

    def put(self, key: tuple[str, str, str], query: ProjectedQuery, revision: int | None = None) -> None:
        """Keep a text, and forget the one that was asked longest ago; `revision` where it depends on what
        items have."""
        if len(key[-1]) > LONGEST_TEXT:
            return
        with self._lock:
            self._queries[key] = query, revision
            if len(self._queries) > _MOST_TEXTS:
                del self._queries[next(iter(self._queries))]

    def note_texts(self, modality: str, items: Iterable[ShownItem]) -> None:
        """Take note of how much text an answer shows."""
        lengths = [len(item.text) for item in items if item.text is not None]
        if lengths:
            mean = sum(lengths) / len(lengths)
            self.text_bytes[modality] = max(mean, self.text_bytes.get(modality, 0.0))


_GALLERIES = "galleries.json"
_ENCODERS = "encoders.json"
_NAMES = "names.json"
_HELD_OUT_MODEL = "judged"
"""Folder of the model that the held-out figures belong to; the name is part of the file format."""
_INDEXES = "indexes"
"""Folder of the approximate indexes, for large galleries; without them the galleries are searched exactly."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutModel:
    """The model that a version's held-out figures belong to: the same method, fitted without those items."""

    projector: Projector  # never serves; later versions are compared with it
    training_ids: frozenset[str]  # items it was fitted on


@dataclass(slots=True, eq=False)
class Names:
    """Names of labels and values, which move the items that carry them."""

    without: Sequence[str] | None = None  # facets that have none; None: nothing is moved, as once was so
    n_missed: int = 0  # how often some were left out, as a file of the encoder was away
    # by modality of texts, the last ones; None where one is unknown; replaced whole, as threads share them
    projected: dict[str, dict[str, Vector | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model version in memory; all mappings are by modality."""

    version: int
    index_revision: int  # of the collection, as of the stored galleries
    projector: Projector
    encoders: Mapping[str, Any]
    modalities: tuple[Modality, Modality]  # with the options of its encoders; X first
    galleries: Mapping[str, tuple[tuple[str, ...], Matrix]]  # item ids and where they stand
    # what is wrong with the bundle's `HeldOutModel`, which no search needs
    held_out_damage: str | None = None
    # approximate ones over the rows of large galleries
    indexes: Mapping[str, GalleryIndex] = field(default_factory=dict)
    # recall@10 of the approximate indexes, as the training measured it
    published_recall: Mapping[str, float] = field(default_factory=dict)
    # encodes items stored with another encoder; None where all have the right features
    originals: Originals | None = None
    # those that were just asked
    texts: RecentTexts = field(default_factory=RecentTexts)
    # what items of a gallery have in common, with the revision, as of `learn_background`
    backgrounds: dict[str, tuple[int, Matrix]] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    # by measure, the weights of terms that a training found best for it
    emphases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # of version 0, until `empty`: whether to make it takes more than a moment, and whether vectors are taken
    # to be of one space only since they have one length
    is_slow: bool = False
    assumes_space: bool = False
    empty: str = ""  # the modality of which there are no items, and nothing can be asked or placed

    @property
    def modality_names(self) -> tuple[str, str]:
        """Names of both modalities, X first."""
        return self.modalities[0].name, self.modalities[1].name

    @property
    def is_trained(self) -> bool:
        """Whether it is a version that was trained."""
        return self.version != UNTRAINED

    def with_features(
        self, work: UnitOfWork, collection: Collection, name: str, items: Sequence[Item]
    ) -> list[Item]:
        """Return items of one modality with the features of this model's encoder; see `Originals`."""
        if self.originals is None:
            return list(items)
        modality = self.modalities[self.modality_names.index(name)]
        return self.originals.with_features(work, collection, modality, self.encoders[name], items)

    def project(self, modality: str, features: Features) -> Matrix:
        """Return the (n, rank) projections of features of one modality; see `can_be_ranked`."""
        is_x = modality == self.modality_names[0]
        features = self._taken(modality, features)
        projected: Matrix = self.projector.project_x(features) if is_x else self.projector.project_z(features)
        return projected

    def project_query(self, modality: str, features: Features) -> tuple[Matrix, bool]:
        """Return the (1, rank) projection of a query, and whether it is like anything learned from."""
        return self.projector.project_query(self._taken(modality, features), self._side(modality))

    def project_words(self, modality: str, features: Features) -> Matrix:
        """Return projections of which all is zero but what features of one modality are themselves."""
        return self.projector.project_words(self._taken(modality, features), self._side(modality))

    def content_parts(self, modality: str) -> list[SpacePart]:
        """Return the parts of the space in which content of one modality is as it is."""
        return [part for part in self.projector.parts if part.name == f"content:{self._side(modality)}"]

    def probability(self, modality: str, query: ProjectedQuery, scores: Vector) -> Sequence[float | None]:
        """Return the probabilities for scores of a query, the least where it is like nothing learned from."""
        if not self.knows_matches(modality):
            return [None] * len(scores)
        scores = scores if query.is_like else np.full_like(scores, -np.inf)
        of_side = self.projector.probability(scores[None], query.projected, self._side(modality))
        probabilities: list[float] = of_side[0].tolist()
        return probabilities

    def knows_matches(self, modality: str) -> bool:
        """Return whether queries of a modality have probabilities."""
        return self.projector.knows_matches(self._side(modality))

    def weak_probability(self, modality: str) -> float:
        """Return the probability of a best result below which none stands out, of queries of a modality."""
        return self.projector.weak_probability(self._side(modality))

    def _taken(self, modality: str, features: Features) -> Features:
        n_features = self.projector.n_features[modality != self.modalities[0].name]
        return features_for(features, self.encoders[modality], n_features)

    def _side(self, modality: str) -> str:
        return "x" if modality == self.modalities[0].name else "z"


@dataclass(eq=False)
class ModelBundles:
    """Writes and reads model bundles, with their galleries and the indexes of large ones."""

    _files: Bundles
    _encoders: EncoderRegistry
    originals: Originals

    def publish(
        self,
        collection: Collection,
        model: LoadedModel,
        report: TrainingReport,
        held_out_model: HeldOutModel | None = None,
    ) -> tuple[str, str]:
        """Write a bundle and return its folder name and manifest hash; the report goes into the manifest.
        Later versions will be compared with the held-out model."""
        manifest = report.to_json()

        def fill(folder: Path) -> None:
            save_projector(model.projector, folder, manifest)
            if held_out_model is not None:
                (folder / _HELD_OUT_MODEL).mkdir()
                training_ids = {"fitted": sorted(held_out_model.training_ids)}
                save_projector(held_out_model.projector, folder / _HELD_OUT_MODEL, training_ids)
            states = {name: encoder.state() for name, encoder in model.encoders.items()}
            _write_json(folder / _ENCODERS, states)
            names = {"without": model.names.without, "n_missed": model.names.n_missed}
            _write_json(folder / _NAMES, names)
            _write_json(folder / _GALLERIES, {name: ids for name, (ids, _) in model.galleries.items()})
            for side, name in zip("xz", model.modality_names, strict=True):
                ExactIndex(model.galleries[name][1]).save(folder / f"{side}.faiss")
                if (index := model.indexes.get(name)) is not None:
                    (folder / _INDEXES).mkdir(exist_ok=True)
                    save_index(index, folder / _INDEXES / side)

        return self._files.write(f"{collection.id}-v{model.version}", fill, manifest)

    def check(self, version: ModelVersion) -> None:
        """Look for damage in a stored bundle; raises DamagedBundleError."""
        self._files.check(version.bundle, version.manifest_hash)

    def load_held_out_model(self, version: ModelVersion) -> HeldOutModel | None:
        """Return what later versions are compared with, if this one has it; raises DamagedBundleError."""
        with self._files.open(version.bundle, version.manifest_hash) as folder:
            if not (folder / _HELD_OUT_MODEL).is_dir():
                return None
            try:
                projector, metadata = load_projector(folder / _HELD_OUT_MODEL)
            except ArtifactError as error:
                raise DamagedBundleError(f"bundle {version.bundle}: its model cannot be read") from error
        return HeldOutModel(projector, frozenset(metadata["fitted"]))

    def load(self, collection: Collection, version: ModelVersion) -> LoadedModel:
        """Load a bundle; raises DamagedBundleError if a file that serves differs from what was published."""
        with self._open(version) as opened:
            return self._read(collection, version, *opened)

    def _read(
        self,
        collection: Collection,
        version: ModelVersion,
        folder: Path,
        damage: str | None,
        has_indexes: bool,
    ) -> LoadedModel:
        try:
            projector, _ = load_projector(folder)
            states = json.loads((folder / _ENCODERS).read_text(encoding="utf-8"))
            ids = json.loads((folder / _GALLERIES).read_text(encoding="utf-8"))
            path = folder / _NAMES
            names = Names(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else Names()
        except (ArtifactError, OSError, ValueError) as error:
            raise DamagedBundleError(f"bundle {version.bundle}: its model cannot be read") from error
        modalities = version.modalities or collection.modalities
        encoders, galleries = {}, {}
        indexes: dict[str, GalleryIndex] = {}
        for side, modality in zip("xz", modalities, strict=True):
            # Early releases stored no state of encoders that are not fitted.
            state = states.get(modality.name, {})
            encoders[modality.name] = self._encoders.restore(modality.encoder, state)
            index = ExactIndex.load(folder / f"{side}.faiss", projector.rank)
            item_ids = tuple(ids[modality.name])
            vectors = index.vectors if projector.rank else np.zeros((len(item_ids), 0), np.float32)
            if len(vectors) != len(item_ids):
                sizes = f"{len(vectors)} rows, {len(item_ids)} items of {modality.name!r}"
                raise DamagedBundleError(f"bundle {version.bundle}: {sizes}")
            galleries[modality.name] = (item_ids, vectors)
            path = folder / _INDEXES / side
            if has_indexes and path.is_file():
                indexes |= self._load_index(version, modality.name, path, vectors)
        return LoadedModel(
            version.version,
            version.index_revision,
            projector,
            encoders,
            modalities,
            galleries,
            damage,
            indexes,
            version.report.index.published,
            self.originals,
            names=names,
            emphases=version.report.fit.emphases,
        )

    def _load_index(
        self, version: ModelVersion, modality: str, path: Path, vectors: Matrix
    ) -> dict[str, GalleryIndex]:
        """Return the approximate index of a modality by its name; none where another release wrote it."""
        try:
            return {modality: load_index(path, vectors)}
        except DamagedBundleError as error:
            _logger.warning("%s: searching %s exactly: %s", version.bundle, modality, error)
            return {}

    @contextmanager
    def _open(self, version: ModelVersion) -> Iterator[tuple[Path, str | None, bool]]:
        """Yield the folder of a bundle, the damage of its held-out model, and whether its indexes are whole.
        Raises DamagedBundleError if any other part is damaged."""
        name, manifest_hash = version.bundle, version.manifest_hash
        with ExitStack() as opened:
            held_out_damage = index_damage = None
            try:
                folder = opened.enter_context(self._files.open(name, manifest_hash))
            except DamagedBundleError:
                # Raises again unless only these parts are damaged.
                parts = [_HELD_OUT_MODEL, _INDEXES]
                folder = opened.enter_context(self._files.open(name, manifest_hash, without=parts))
                held_out_damage = self._damage(version, _INDEXES)
                index_damage = self._damage(version, _HELD_OUT_MODEL)
            if index_damage is not None:
                _logger.warning("%s: searching exactly, as an index is damaged: %s", name, index_damage)
            yield folder, held_out_damage, index_damage is None

    def _damage(self, version: ModelVersion, without: str) -> str | None:
        """Return what is wrong with a bundle apart from one part; None if nothing is."""
        try:
            with self._files.open(version.bundle, version.manifest_hash, without=[without]):
                return None
        except DamagedBundleError as error:
            return str(error)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
