"""The published protocols of Kang et al. (CIKM 2015): Wikipedia, VOC2007 and NUS-WIDE from the user's files.

A protocol's folder holds one file, ``<name>.npz`` or ``<name>.mat``, with the arrays ``I_tr``, ``I_te``
(pictures), ``T_tr``, ``T_te`` (texts; row i belongs to picture i) and the classes, either ``y_tr``, ``y_te``
(one a row) or ``L_tr``, ``L_te`` (0/1, one column a class). With ``L_*`` the protocol's rule says which rows
are kept. For Wikipedia the release files (Rasiwasia et al., ACM MM 2010) are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.io

from solver.datasets.features import PairedFeatures
from solver.datasets.files import label_column, read_arrays, reading, split_features
from solver.validation import DatasetError, InvalidParameterError

_FEATURES = "raw_features.mat"
_CATEGORIES = "categories.list"
_LISTS = {"tr": "trainset_txt_img_cat.list", "te": "testset_txt_img_cat.list"}


def load_wikipedia(directory: str | Path) -> PairedFeatures:
    """Load pictures (128-d SIFT bag of words) and texts (10-d LDA) with their original split.

    Parameters
    ----------
    directory : path
        Holds ``raw_features.mat`` (I_tr, I_te, T_tr, T_te), ``trainset_txt_img_cat.list``,
        ``testset_txt_img_cat.list`` (text id, picture id, class 1..10) and ``categories.list``.

    Returns
    -------
    PairedFeatures
        X are the pictures, Z the texts; rows in the order of the lists, train first.

    Raises
    ------
    DatasetError
        If a file is missing or damaged, or the lists and the features disagree.
    """
    root = Path(directory)
    names = _read_lines(root / _CATEGORIES)
    with reading(root / _FEATURES, "MATLAB file"):
        features = scipy.io.loadmat(root / _FEATURES)
    rows = {
        suffix: [_parse(line, len(names), root / list_name) for line in _read_lines(root / list_name)]
        for suffix, list_name in _LISTS.items()
    }
    all_rows = [row for part in rows.values() for row in part]
    return PairedFeatures(
        X=split_features(features, "I", rows, root / _FEATURES, "rows of the lists"),
        Z=split_features(features, "T", rows, root / _FEATURES, "rows of the lists"),
        labels=np.asarray([names[category - 1] for *_, category in all_rows], dtype=np.str_),
        is_train=np.arange(len(all_rows)) < len(rows["tr"]),
        x_ids=tuple(picture_id for _, picture_id, _ in all_rows),
        z_ids=tuple(text_id for text_id, _, _ in all_rows),
    )


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    return [line for line in text.splitlines() if line.strip()]


def _parse(line: str, n_categories: int, path: Path) -> tuple[str, str, int]:
    fields = line.split()
    is_whole = len(fields) == 3 and re.fullmatch(r"[0-9]{1,6}", fields[2])
    if not is_whole or not 1 <= int(fields[2]) <= n_categories:
        raise DatasetError(
            f"{path}: expected 'text-id picture-id class(1..{n_categories})', got {line!r:.200}"
        )
    return fields[0], fields[1], int(fields[2])


_SPLITS = ("tr", "te")


@dataclass(frozen=True, slots=True)
class PublishedProtocol:
    """Published figures, and what is known of how they were measured.

    Parameters
    ----------
    name : str
    published : dict of str to float
        Average MAP of both directions, as fractions: "LRBS" and "second best".
    n_train, n_test : int or None
        Pairs; None where it is not known.
    x_features, z_features : dict of int to str
        Features by their number; empty where they are not known.
    reported, unreported : str
        What is known of the setting, and what is not.
    n_classes_kept : int or None
        With ``L_*``, only rows of this many most frequent classes of the training split are kept; all when
        None.
    """

    name: str
    published: Mapping[str, float]
    n_train: int | None
    n_test: int | None
    x_features: Mapping[int, str]
    z_features: Mapping[int, str]
    reported: str
    unreported: str
    n_classes_kept: int | None = None

    def differences(self, data: PairedFeatures) -> list[str]:
        """Return why figures on a set are not comparable with the published ones; empty when they are."""
        differences = []
        for content, n_features, expected in (
            ("pictures", data.X.shape[1], self.x_features),
            ("texts", data.Z.shape[1], self.z_features),
        ):
            if not expected:
                differences.append(
                    f"other features, as far as known: {n_features}-d {content}, published: not known"
                )
            elif n_features not in expected:
                published = " or ".join(f"{size}-d {name}" for size, name in expected.items())
                differences.append(f"other features: {n_features}-d {content}, published: {published}")
        n_train = int(data.is_train.sum())
        for split, n_rows, n_published in (
            ("training", n_train, self.n_train),
            ("test", len(data.labels) - n_train, self.n_test),
        ):
            if n_published is not None and n_rows != n_published:
                differences.append(f"another split: {n_rows} {split} pairs, published: {n_published}")
        return differences


PROTOCOLS: Mapping[str, PublishedProtocol] = {
    protocol.name: protocol
    for protocol in (
        PublishedProtocol(
            "wikipedia",
            {"LRBS": 0.4109, "second best": 0.3499},
            2173,
            693,
            {4096: "CNN"},
            {200: "LDA"},
            "2866 pairs of 10 classes, 2173 to train and 693 to test; 4096-d CNN pictures, 200-d LDA texts",
            "which layer of which network; the corpus of the topics; how parameters were chosen",
        ),
        PublishedProtocol(
            "voc2007",
            {"LRBS": 0.6695, "second best": 0.6597},
            2808,
            2841,
            {512: "GIST", 4096: "CNN"},
            {399: "word frequency"},
            "pictures with a single class of 20, 2808 to train and 2841 to test, as in Sharma et al. (CVPR "
            "2012); 399-d word frequencies",
            "whether the published number is of GIST or of CNN pictures; how parameters were chosen",
        ),
        PublishedProtocol(
            "nus-wide",
            {"LRBS": 0.2127, "second best": 0.2007},
            None,
            None,
            {},
            {},
            "pictures with tags",
            "features, split and classes; here: rows with exactly one of the 10 most frequent classes",
            n_classes_kept=10,
        ),
    )
}


def load_protocol(name: str, folder: str | Path) -> PairedFeatures:
    """Load a set in a published setting.

    Parameters
    ----------
    name : {"wikipedia", "voc2007", "nus-wide"}
    folder : path
        Holds ``<name>.npz`` or ``<name>.mat``; see the module.

    Raises
    ------
    InvalidParameterError
        If the protocol is unknown.
    DatasetError
        If the file or one of its arrays is missing, damaged or does not fit the others; names it.
    """
    if name not in PROTOCOLS:
        raise InvalidParameterError("protocol", name, f"one of {', '.join(PROTOCOLS)}")
    root = Path(folder)
    files = [root / f"{name}{suffix}" for suffix in (".npz", ".mat")]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        if name == "wikipedia" and (root / "raw_features.mat").is_file():
            return load_wikipedia(root)
        raise DatasetError(f"{root} holds neither {files[0].name} nor {files[1].name}")
    arrays = read_arrays(path)
    classes, is_kept = _classes(arrays, PROTOCOLS[name].n_classes_kept, path)
    X, Z = (split_features(arrays, side, classes, path, "rows of classes") for side in ("I", "T"))
    ids = np.asarray([f"{split}-{row:05d}" for split in _SPLITS for row in range(len(classes[split]))])
    mask = np.concatenate([is_kept[split] for split in _SPLITS])
    names = tuple(ids[mask].tolist())
    return PairedFeatures(
        X=X[mask],
        Z=Z[mask],
        labels=np.concatenate([classes[split] for split in _SPLITS]).astype(np.str_)[mask],
        is_train=(np.arange(len(mask)) < len(classes["tr"]))[mask],
        x_ids=names,
        z_ids=names,
    )


def _classes(
    arrays: dict[str, Any], n_classes_kept: int | None, path: Path
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[np.bool]]]:
    """Return the class of each row, and which rows are kept."""
    if all(f"L_{split}" in arrays for split in _SPLITS):
        indicators = {split: _indicators(arrays[f"L_{split}"], f"L_{split}", path) for split in _SPLITS}
        counts = indicators["tr"].sum(axis=0)
        if len(counts) != indicators["te"].shape[1]:
            raise DatasetError(f"{path}: L_tr and L_te have different numbers of classes")
        frequent = np.argsort(-counts, kind="stable")[:n_classes_kept]
        columns = {split: table[:, frequent] for split, table in indicators.items()}
        return (
            {split: frequent[table.argmax(axis=1)] for split, table in columns.items()},
            {split: table.sum(axis=1) == 1 for split, table in columns.items()},
        )
    if any(f"y_{split}" not in arrays for split in _SPLITS):
        raise DatasetError(f"{path} has no classes: neither y_tr and y_te nor L_tr and L_te")
    labels = {split: label_column(arrays[f"y_{split}"], f"y_{split}", path) for split in _SPLITS}
    return labels, {split: np.ones(len(column), np.bool) for split, column in labels.items()}


def _indicators(array: Any, name: str, path: Path) -> npt.NDArray[np.intp]:
    is_matrix = isinstance(array, np.ndarray) and array.ndim == 2 and array.dtype.kind in "iubf"
    if not is_matrix or not np.isin(array, (0, 1)).all():
        raise DatasetError(f"{path}: {name} must be a matrix of 0 and 1, one column a class")
    indicators: npt.NDArray[np.intp] = array.astype(np.intp)
    return indicators
