"""The Wikipedia image-text set of Rasiwasia et al. (ACM MM 2010), from its release files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.io
from scipy.io.matlab import MatReadError

from solver.datasets.arrays import PairedFeatures
from solver.errors import DatasetError
from solver.linalg import FloatArray

_FEATURES = "raw_features.mat"
_CATEGORIES = "categories.list"
_LISTS = (("train", "tr", "trainset_txt_img_cat.list"), ("test", "te", "testset_txt_img_cat.list"))


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
    try:
        features = scipy.io.loadmat(root / _FEATURES)
    except (OSError, ValueError, TypeError, IndexError, MatReadError) as error:
        raise DatasetError(f"{root / _FEATURES} is not a readable MATLAB file: {error}") from error
    X: list[FloatArray] = []
    Z: list[FloatArray] = []
    labels: list[str] = []
    x_ids: list[str] = []
    z_ids: list[str] = []
    is_train: list[bool] = []
    for split, suffix, list_name in _LISTS:
        rows = [_parse(line, len(names), root / list_name) for line in _read_lines(root / list_name)]
        for part, key in ((X, f"I_{suffix}"), (Z, f"T_{suffix}")):
            if key not in features or features[key].shape[0] != len(rows):
                raise DatasetError(f"{root / _FEATURES}: {key} must have the {len(rows)} rows of {list_name}")
            part.append(features[key])
        for text_id, picture_id, category in rows:
            z_ids.append(text_id)
            x_ids.append(picture_id)
            labels.append(names[category - 1])
        is_train += [split == "train"] * len(rows)
    return PairedFeatures(
        np.concatenate(X),
        np.concatenate(Z),
        np.asarray(labels),
        np.asarray(is_train),
        tuple(x_ids),
        tuple(z_ids),
    )


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    return [line for line in text.splitlines() if line.strip()]


def _parse(line: str, n_categories: int, path: Path) -> tuple[str, str, int]:
    fields = line.split()
    if len(fields) != 3 or not fields[2].isdigit() or not 1 <= int(fields[2]) <= n_categories:
        raise DatasetError(f"{path}: expected 'text-id picture-id class(1..{n_categories})', got {line!r}")
    return fields[0], fields[1], int(fields[2])
