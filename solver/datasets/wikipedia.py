"""The Wikipedia image-text set of Rasiwasia et al. (ACM MM 2010), from its release files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from solver.datasets.arrays import PairedFeatures
from solver.datasets.boundary import reading, stacked_features
from solver.linalg.matrices import FloatArray
from solver.validation.errors import DatasetError

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
    with reading(root / _FEATURES, "MATLAB file"):
        features = scipy.io.loadmat(root / _FEATURES)
    rows = {
        suffix: [_parse(line, len(names), root / list_name) for line in _read_lines(root / list_name)]
        for _, suffix, list_name in _LISTS
    }
    all_rows = [row for part in rows.values() for row in part]
    return PairedFeatures(
        X=_features(features, "I", rows, root / _FEATURES),
        Z=_features(features, "T", rows, root / _FEATURES),
        labels=np.asarray([names[category - 1] for *_, category in all_rows], dtype=np.str_),
        is_train=np.arange(len(all_rows)) < len(rows["tr"]),
        x_ids=tuple(picture_id for _, picture_id, _ in all_rows),
        z_ids=tuple(text_id for text_id, _, _ in all_rows),
    )


def _features(features: dict[str, Any], modality: str, rows: dict[str, list[Any]], path: Path) -> FloatArray:
    parts = {f"{modality}_{suffix}": features.get(f"{modality}_{suffix}") for suffix in rows}
    stacked = stacked_features(parts, path)
    for _, suffix, list_name in _LISTS:
        name = f"{modality}_{suffix}"
        if len(features[name]) != len(rows[suffix]):
            raise DatasetError(f"{path}: {name} must have the {len(rows[suffix])} rows of {list_name}")
    return stacked


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
