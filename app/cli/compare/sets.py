"""The sets on which methods are compared, and the origin of their features."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.cli.compare.cache import FileCache
from app.domain.entities import Content, Matrix
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.encoders.registry import EncoderRegistry
from app.encoders.types.tfidf import TfidfEncoder
from app.services.models.placement import facet_name, facet_values
from app.services.training.facets import MetadataSides, categorical_keys
from app.services.training.requests import class_of
from solver import Annotations
from solver.datasets import (
    LABEL,
    PARTNER,
    PairedFeatures,
    PictureTextRow,
    annotate_rows,
    load_npz,
    load_wikipedia,
    read_picture_text_table,
)

Values = list[tuple[str, ...]]
"""Values of each row; none where they are unknown."""
_RESPLIT = re.compile(r"(?P<name>.+)@(?P<seed>[0-9]{1,9})")
_TERMS = 1000  # words and pairs of words, as many as the texts of the set `wikipedia_tfidf` have
_MAX_TEXT_CHARS = 20_000  # the limit that the encoder requires; far beyond the longest product name
_MIN_CLASS_ROWS = 25  # rows of a colour below which it cannot be learned: some are named once
_FILES: Mapping[str, str] = {
    "wikipedia": "wikipedia/raw_features.mat",
    "wikipedia_tfidf": "wikipedia/wikipedia.npz",
    "wikipedia_cnn": "wikipedia_cnn/wikipedia_cnn.npz",
    "audio_digits": "audio_digits/audio_digits.npz",
    "products": "products/items.csv",
    "products_colour": "products/items.csv",
}
"""The first file that each set is read from, in the folder of the real data."""


def facets_of(
    sides: MetadataSides, is_train: Sequence[bool], names: Sequence[str] | None
) -> dict[str, tuple[Values, Values]]:
    """Return the values of each facet of the rows of both modalities, by name or as a training finds them in
    training rows."""
    # Raises InvalidFieldError (names the option) if a named key has no value in one of the modalities.
    if names is None:
        x_train, z_train = (
            [metadata for metadata, is_fitted in zip(side, is_train, strict=True) if is_fitted]
            for side in sides
        )
        names = categorical_keys((x_train, z_train), labels=None)
    facets = {}
    for key in names:
        first, second = ([facet_values(metadata, key) for metadata in side] for side in sides)
        if not any(first) or not any(second):
            keys = sorted({key for side in sides for metadata in side for key in metadata})
            raise InvalidFieldError(
                "--facets", f"no item has a value of {key!r}, there are {join_words(keys)}"
            )
        facets[facet_name(key)] = first, second
    return facets


@dataclass(frozen=True, slots=True, eq=False)
class ComparedSet:
    """A set with what a reader of its results needs to know."""

    name: str  # on the command line
    data: PairedFeatures
    features: str  # describes those of both modalities
    relevance: str = "same class"  # when an item answers a query
    # the originals, one for each row of `data`; empty where only features are there
    rows: tuple[PictureTextRow, ...] = ()
    modalities: tuple[str, str] = ("image", "text")
    annotations: Annotations | None = None  # what is known of the rows; None: label and partner
    class_name: str = LABEL  # what the classes are: "label", "partner", or a facet

    @property
    def classes(self) -> str:
        """What the classes are, in words."""
        words = {LABEL: "classes", PARTNER: "groups of partners"}
        return words.get(self.class_name, f"values of {self.class_name!r}")


def relevance_of(class_name: str) -> str:
    """Return when an item answers a query, if classes are these."""
    return "partner" if class_name == PARTNER else f"same {class_name}"


class SetLoader:
    """Loads sets by name from the folder of the real data."""

    def __init__(self, root: Path | None, encoders: EncoderRegistry, cache: FileCache) -> None:
        self._folder, self._encoders, self._cache = root, encoders, cache
        self._loaders: Mapping[str, Callable[[], ComparedSet]] = {
            "wikipedia": self._wikipedia,
            "wikipedia_tfidf": self._wikipedia_tfidf,
            "wikipedia_cnn": self._wikipedia_cnn,
            "audio_digits": self._audio_digits,
            "products": lambda: self._products("products", "label"),
            "products_colour": lambda: self._products("products_colour", "colour"),
        }

    def check(self, names: Sequence[str]) -> None:
        """Reject unknown names and missing files before anything is computed; raises InvalidFieldError."""
        for name in names:
            file = _FILES[self._base(name)]
            path = self._root / file
            if not path.exists():
                raise InvalidFieldError("sets", f"{name!r} needs {path}, which is not there")

    def load(self, name: str) -> ComparedSet:
        """Return a set; ``name@seed`` draws another split at random, with the same share of each class.
        Raises InvalidFieldError for its name, and DatasetError if its files are missing or damaged."""
        compared = self._loaders[self._base(name)]()
        resplit_name = _RESPLIT.fullmatch(name)
        return compared if resplit_name is None else resplit(compared, int(resplit_name["seed"]))

    def _base(self, name: str) -> str:
        """Return the name of the set without a seed."""
        resplit_name = _RESPLIT.fullmatch(name)
        base = resplit_name["name"] if resplit_name else name
        if base not in self._loaders:
            raise InvalidFieldError("sets", f"unknown set {name!r}, expected {join_words(self._loaders)}")
        return base

    @property
    def _root(self) -> Path:
        if self._folder is None:
            raise InvalidFieldError(
                "LRBS_TEST_DATA", "expected the folder that holds the sets, it is not set"
            )
        return self._folder

    def _wikipedia(self) -> ComparedSet:
        data = load_wikipedia(self._root / "wikipedia")
        return ComparedSet("wikipedia", data, "pictures: 128-d SIFT words; texts: 10-d LDA topics")

    def _wikipedia_tfidf(self) -> ComparedSet:
        data = load_npz(self._root / "wikipedia" / "wikipedia.npz", "I", "T_tfidf")
        return ComparedSet("wikipedia_tfidf", data, "pictures: 128-d SIFT words; texts: 1000-d tf-idf")

    def _wikipedia_cnn(self) -> ComparedSet:
        data = load_npz(self._root / "wikipedia_cnn" / "wikipedia_cnn.npz", "I", "T")
        features = "pictures: 128-d PCA of CNN features; texts: 100-d word embedding (kinds inferred)"
        return ComparedSet("wikipedia_cnn", data, features)

    def _audio_digits(self) -> ComparedSet:
        data = load_npz(self._root / "audio_digits" / "audio_digits.npz", "I", "A")
        features = "written digits: 8 x 8 pixels; spoken digits: 91-d MFCC statistics"
        labels = [(label,) for label in data.labels.tolist()]
        # A digit was paired with some recording of it: no two are partners.
        annotations = annotate_rows({LABEL: (labels, labels)}, [""] * len(labels))
        return ComparedSet(
            "audio_digits", data, features, modalities=("image", "sound"), annotations=annotations
        )

    def _products(self, name: str, column: str) -> ComparedSet:
        folder = self._root / "products"
        rows = read_picture_text_table(folder / "items.csv", label_columns=(column,), split_column="split")
        if column == "colour":
            rows = _frequent(rows)
        is_train = np.asarray([row.is_train for row in rows])
        pictures, described = self._pictures(rows)
        ids = tuple(row.id for row in rows)
        data = PairedFeatures(
            X=pictures,
            Z=_text_features(rows, is_train),
            labels=np.asarray([class_of(row.labels) for row in rows], np.str_),
            is_train=is_train,
            x_ids=ids,
            z_ids=ids,
        )
        features = f"pictures: {described}; names: {data.Z.shape[1]}-d tf-idf of words and pairs of words"
        relevance = "same category" if column == "label" else "same colour"
        values, metadata = [row.labels for row in rows], [row.other for row in rows]
        facets = facets_of((metadata, metadata), is_train.tolist(), None)
        annotations = annotate_rows({LABEL: (values, values), **facets})
        return ComparedSet(name, data, features, relevance, tuple(rows), annotations=annotations)

    def _pictures(self, rows: list[PictureTextRow]) -> tuple[Matrix, str]:
        """Return features of the pictures and what they are, without a model where none can be run."""
        weights = self._root / "weights" / "mobilenet_v2.onnx"
        options = {"type": "onnx", "path": str(weights), "output": "features"}
        described, model = "1280-d MobileNetV2", b""
        try:
            encoder = self._encoders.make(self._encoders.settle(options))
            model = weights.read_bytes()
        except InvalidFieldError:
            encoder, described = (
                self._encoders.make({"type": "hog-color"}),
                "hog-color (no ONNX model to run)",
            )
        digest = hashlib.sha256(described.encode())
        digest.update(hashlib.sha256(model).digest())
        contents = [Content(picture=row.picture.read_bytes()) for row in rows]
        for content in contents:
            digest.update(hashlib.sha256(content.picture or b"").digest())
        return self._cache.get_or_compute(digest.hexdigest(), lambda: encoder.encode(contents)), described


def resplit(compared: ComparedSet, seed: int) -> ComparedSet:
    """Return the same rows, split at random; each class has the overall share of training rows."""
    data = compared.data
    rng = np.random.default_rng(seed)
    share = float(data.is_train.mean())
    is_train = np.zeros(len(data.labels), np.bool)
    for label in np.unique(data.labels):
        members = rng.permutation(np.flatnonzero(data.labels == label))
        is_train[members[: round(share * len(members))]] = True
    split = dataclasses.replace(data, is_train=is_train)
    if compared.rows:  # the vocabulary of the texts is learned from the training split only
        split = dataclasses.replace(split, Z=_text_features(compared.rows, is_train))
    return dataclasses.replace(compared, name=f"{compared.name}@{seed}", data=split)


def _text_features(rows: Sequence[PictureTextRow], is_train: npt.NDArray[np.bool]) -> Matrix:
    """Return tf-idf features whose vocabulary and weights come from the training rows."""
    encoder = TfidfEncoder({"max_features": _TERMS}, max_chars=_MAX_TEXT_CHARS)
    encoder.fit([row.text for row, is_fitted in zip(rows, is_train, strict=True) if is_fitted])
    features: Matrix = encoder.encode([Content(text=row.text) for row in rows]).toarray()
    return features


def _frequent(rows: list[PictureTextRow]) -> list[PictureTextRow]:
    """Return the rows whose class is frequent enough to be learned."""
    counts: dict[tuple[str, ...], int] = {}
    for row in rows:
        counts[row.labels] = counts.get(row.labels, 0) + 1
    return [row for row in rows if row.labels and counts[row.labels] >= _MIN_CLASS_ROWS]
