"""The sets of the real data, by name, and the origin of their features."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.cli.compare.own_data import (
    ComparedSet,
    FileCache,
    PictureTextRow,
    SetEncoder,
    learned_rows,
    read_table,
)
from app.domain.entities import Content, Matrix
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.domain.reports import Supervision
from app.encoders.registry import EncoderRegistry
from app.encoders.types.tfidf import TfidfEncoder
from solver.datasets import LABEL, annotate_rows, load_npz, load_wikipedia, training_rows

_RESPLIT = re.compile(r"(?P<name>.+)@(?P<seed>[0-9]{1,9})")
_TERMS = 1000  # words and pairs of words, as many as the texts of the set `wikipedia_tfidf` have
_MAX_TEXT_CHARS = 20_000  # the limit that the encoder requires; far beyond the longest product name
_MIN_CLASS_ROWS = 25  # rows of a colour below which it cannot be learned: some are named once


class SetLoader:
    """Loads sets by name from the folder of the real data."""

    def __init__(self, root: Path | None, encoders: EncoderRegistry, cache: FileCache) -> None:
        self._folder, self._encoders, self._cache = root, encoders, cache
        # what reads each, by name, from its first file in the folder of the real data
        self._loaders: Mapping[str, tuple[str, Callable[[str, Path], ComparedSet]]] = {
            "wikipedia": ("wikipedia/raw_features.mat", _wikipedia),
            "wikipedia_tfidf": ("wikipedia/wikipedia.npz", _wikipedia_tfidf),
            "wikipedia_cnn": ("wikipedia_cnn/wikipedia_cnn.npz", _wikipedia_cnn),
            "audio_digits": ("audio_digits/audio_digits.npz", _audio_digits),
            "products": ("products/items.csv", self._products),
            "products_colour": ("products/items.csv", self._products),
        }

    def check(self, names: Sequence[str]) -> None:
        """Reject unknown names and missing files before anything is computed; raises InvalidFieldError."""
        for name in names:
            path = self._root / self._loaders[self._base(name)][0]
            if not path.exists():
                raise InvalidFieldError("sets", f"{name!r} needs {path}, which is not there")

    def load(self, name: str) -> ComparedSet:
        """Return a set; ``name@seed`` draws another split at random, with the same share of each class.
        Raises InvalidFieldError for its name, and DatasetError if its files are missing or damaged."""
        base = self._base(name)
        file, read = self._loaders[base]
        compared = read(base, self._root / file)
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

    def _products(self, name: str, file: Path) -> ComparedSet:
        column = "label" if name == "products" else "colour"
        rows = read_table(file, label_columns=(column,))
        if column == "colour":
            counts = Counter(row.labels for row in rows)
            rows = [row for row in rows if row.labels and counts[row.labels] >= _MIN_CLASS_ROWS]
        is_train = training_rows([row.other["split"] for row in rows], "column 'split'")
        labels, metadata = [row.labels for row in rows], [row.without("split") for row in rows]
        learned = learned_rows(
            (labels, labels), None, (metadata, metadata), is_train, Supervision(), "sets", 0
        )
        pictures, described = self._pictures(rows, is_train)
        texts = _text_features(rows, is_train)
        features = f"pictures: {described}; names: {texts.shape[1]}-d tf-idf of words and pairs of words"
        relevance = "same category" if column == "label" else "same colour"
        ids = [row.id for row in rows]
        return learned.make_set(
            name, features, (pictures, texts), (ids, ids), relevance=relevance, rows=tuple(rows)
        )

    def _pictures(self, rows: Sequence[PictureTextRow], is_train: npt.NDArray[np.bool]) -> tuple[Matrix, str]:
        """Return features of the pictures and what they are, without a model where none can be run."""
        weights = self._root / "weights" / "mobilenet_v2.onnx"
        options, described = (
            {"type": "onnx", "path": str(weights), "output": "features"},
            "1280-d MobileNetV2",
        )
        try:
            self._encoders.settle(options)
        except InvalidFieldError:
            options, described = {"type": "hog-color"}, "hog-color (no ONNX model to run)"
        contents = [Content(picture=row.picture.read_bytes()) for row in rows]
        encoder = SetEncoder(self._encoders, self._cache)
        return encoder.encode(contents, options, "sets", is_train), described


def _wikipedia(name: str, file: Path) -> ComparedSet:
    return ComparedSet(
        name, load_wikipedia(file.parent), "pictures: 128-d SIFT words; texts: 10-d LDA topics"
    )


def _wikipedia_tfidf(name: str, file: Path) -> ComparedSet:
    features = "pictures: 128-d SIFT words; texts: 1000-d tf-idf"
    return ComparedSet(name, load_npz(file, "I", "T_tfidf"), features)


def _wikipedia_cnn(name: str, file: Path) -> ComparedSet:
    features = "pictures: 128-d PCA of CNN features; texts: 100-d word embedding (kinds inferred)"
    return ComparedSet(name, load_npz(file, "I", "T"), features)


def _audio_digits(name: str, file: Path) -> ComparedSet:
    data = load_npz(file, "I", "A")
    features = "written digits: 8 x 8 pixels; spoken digits: 91-d MFCC statistics"
    labels = [(label,) for label in data.labels.tolist()]
    # A digit was paired with some recording of it: no two are partners.
    annotations = annotate_rows({LABEL: (labels, labels)}, [""] * len(labels))
    return ComparedSet(name, data, features, modalities=("image", "sound"), annotations=annotations)


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
