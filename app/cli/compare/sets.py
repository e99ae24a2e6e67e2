"""The sets that can be compared on, and where their features come from."""

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
from app.domain.names import listed
from app.encoders.registry import EncoderRegistry
from app.encoders.texts import TfidfEncoder
from solver.datasets import (
    PairedFeatures,
    PictureTextRow,
    load_npz,
    load_wikipedia,
    read_picture_text_table,
)

_RESPLIT = re.compile(r"(?P<name>.+)@(?P<seed>[0-9]{1,9})")
_TERMS = 1000
_LIMIT_OF_TEXT = 20_000
_LEAST_OF_A_COLOUR = 25
_FILES: Mapping[str, str] = {
    "wikipedia": "wikipedia/raw_features.mat",
    "wikipedia_tfidf": "wikipedia/wikipedia.npz",
    "wikipedia_cnn": "wikipedia_cnn/wikipedia_cnn.npz",
    "audio_digits": "audio_digits/audio_digits.npz",
    "products": "products/items.csv",
    "products_colour": "products/items.csv",
}
"""What each set is read from first, in the folder of the real data."""


@dataclass(frozen=True, slots=True, eq=False)
class ComparedSet:
    """A set with what a reader of its results wants to know.

    Parameters
    ----------
    name : str
        As it is asked for.
    data : PairedFeatures
        Features, classes and split.
    features : str
        What the features of both modalities are.
    relevance : str
        When an item answers a query.
    rows : tuple of PictureTextRow
        The originals, one for each row of `data`; empty where only features are there.
    modalities : tuple of str
        Names of both modalities.
    """

    name: str
    data: PairedFeatures
    features: str
    relevance: str = "same class"
    rows: tuple[PictureTextRow, ...] = ()
    modalities: tuple[str, str] = ("image", "text")


class SetLoader:
    """Loads sets by name.

    Parameters
    ----------
    root : Path or None
        Folder of the real data.
    encoders : EncoderRegistry
        For sets of raw pictures and texts.
    cache : FileCache
        Keeps picture features.
    """

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
        """Refuse names of no set, and sets whose files are not there, before anything is computed.

        Raises
        ------
        InvalidFieldError
            If there is no set of a name, or its files are missing.
        """
        for name in names:
            file = _FILES[self._base(name)]
            path = self._root / file
            if not path.exists():
                raise InvalidFieldError("sets", f"{name!r} needs {path}, which is not there")

    def load(self, name: str) -> ComparedSet:
        """Return a set; ``name@seed`` splits its rows anew, at random, class by class, in the same shares.

        Raises
        ------
        InvalidFieldError
            If there is no set of that name.
        DatasetError
            If its files are missing or damaged.
        """
        found = self._loaders[self._base(name)]()
        again = _RESPLIT.fullmatch(name)
        return found if again is None else split_anew(found, int(again["seed"]))

    def _base(self, name: str) -> str:
        """Return the set that a name is of, without a seed."""
        again = _RESPLIT.fullmatch(name)
        base = again["name"] if again else name
        if base not in self._loaders:
            raise InvalidFieldError("sets", f"unknown set {name!r}, expected {listed(self._loaders)}")
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
        what = "pictures: 128-d PCA of CNN features; texts: 100-d word embedding (kinds inferred)"
        return ComparedSet("wikipedia_cnn", data, what)

    def _audio_digits(self) -> ComparedSet:
        data = load_npz(self._root / "audio_digits" / "audio_digits.npz", "I", "A")
        what = "written digits: 8 x 8 pixels; spoken digits: 91-d MFCC statistics"
        return ComparedSet("audio_digits", data, what, modalities=("image", "sound"))

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
            labels=np.asarray([row.labels[0] for row in rows], np.str_),
            is_train=is_train,
            x_ids=ids,
            z_ids=ids,
        )
        what = f"pictures: {described}; names: {data.Z.shape[1]}-d tf-idf of words and pairs of words"
        relevance = "same category" if column == "label" else "same colour"
        return ComparedSet(name, data, what, relevance, tuple(rows))

    def _pictures(self, rows: list[PictureTextRow]) -> tuple[Matrix, str]:
        """Return features of the pictures and what they are, without a model where none can be run."""
        weights = self._root / "weights" / "mobilenet_v2.onnx"
        options = {"type": "onnx", "path": str(weights), "output": "features"}
        described, model = "1280-d MobileNetV2", b""
        try:
            encoder = self._encoders.make(self._encoders.settled(options))
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
        return self._cache.made_once(digest.hexdigest(), lambda: encoder.encode(contents)), described


def split_anew(found: ComparedSet, seed: int) -> ComparedSet:
    """Return the same rows with another split: of each class as large a share is trained on, at random."""
    data = found.data
    rng = np.random.default_rng(seed)
    share = float(data.is_train.mean())
    is_train = np.zeros(len(data.labels), np.bool)
    for label in np.unique(data.labels):
        members = rng.permutation(np.flatnonzero(data.labels == label))
        is_train[members[: round(share * len(members))]] = True
    split = dataclasses.replace(data, is_train=is_train)
    if found.rows:  # their words, too, are learned on the training split only
        split = dataclasses.replace(split, Z=_text_features(found.rows, is_train))
    return dataclasses.replace(found, name=f"{found.name}@{seed}", data=split)


def _text_features(rows: Sequence[PictureTextRow], is_train: npt.NDArray[np.bool]) -> Matrix:
    """Return tf-idf features whose vocabulary and weights come from the training rows."""
    encoder = TfidfEncoder({"max_features": _TERMS}, max_chars=_LIMIT_OF_TEXT)
    encoder.fit([row.text for row, is_fitted in zip(rows, is_train, strict=True) if is_fitted])
    features: Matrix = encoder.encode([Content(text=row.text) for row in rows]).toarray()
    return features


def _frequent(rows: list[PictureTextRow]) -> list[PictureTextRow]:
    """Return the rows whose class is frequent enough to be learned."""
    counts: dict[tuple[str, ...], int] = {}
    for row in rows:
        counts[row.labels] = counts.get(row.labels, 0) + 1
    return [row for row in rows if row.labels and counts[row.labels] >= _LEAST_OF_A_COLOUR]
