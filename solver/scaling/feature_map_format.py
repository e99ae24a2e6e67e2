"""The file format of a feature map: named arrays, and a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.linalg.samples import check_array
from solver.scaling.feature_maps import FeatureMap
from solver.scaling.scaler import Scaler
from solver.validation.errors import InvalidInputError, InvalidParameterError

MAX_MAGNITUDE = 1e15
"""Largest landmark, whitening, coefficient or factor: sums of its squares are finite, even in float32."""
HAS_SPARSE_LANDMARKS = "has_sparse_landmarks"  # field of the JSON object, where the landmarks are sparse
_SCALER_ARRAYS = ("mean", "scale")
_DENSE_LANDMARKS = ("landmarks",)
_SPARSE_LANDMARKS = ("landmarks", "landmark_columns", "landmark_ends")
"""Entries that are not zero, the column of each, and the end of each row among them."""

Description = Mapping[str, Any]  # the JSON object


def feature_map_parts(feature_map: FeatureMap) -> dict[str, FloatArray]:
    """Return the arrays of a feature map by the end of their names."""
    return {
        "mean": feature_map.scaler.mean_,
        "scale": feature_map.scaler.scale_,
        "whitening": feature_map.whitening,
        **_landmark_arrays(feature_map.landmarks),
    }


def describe_feature_map(feature_map: FeatureMap) -> dict[str, Any]:
    """Return everything of a feature map that is not an array, as JSON values."""
    description: dict[str, Any] = {
        "scaling": feature_map.scaler.kind_,
        "kernel": feature_map.kernel,
        "gamma": feature_map.gamma,
    }
    if is_sparse(feature_map.landmarks):
        description[HAS_SPARSE_LANDMARKS] = True
    return description


def feature_map_arrays(description: Description) -> tuple[str, ...]:
    """Return the ends of the names of the arrays that a feature map with this description has."""
    landmarks = _SPARSE_LANDMARKS if description.get(HAS_SPARSE_LANDMARKS) else _DENSE_LANDMARKS
    return (*_SCALER_ARRAYS, "whitening", *landmarks)


def check_magnitude(name: str, array: FloatArray) -> None:
    """Raise InvalidInputError if an array has entries whose sums would overflow."""
    if np.abs(array).max(initial=0.0) > MAX_MAGNITUDE:
        raise InvalidInputError(f"{name} must not exceed {MAX_MAGNITUDE:g}: sums of it would overflow")


def read_feature_map(name: str, description: Description, arrays: Mapping[str, FloatArray]) -> FeatureMap:
    """Rebuild a feature map whose arrays begin with this name; raises InvalidInputError."""
    parts = {part: arrays[f"{name}_{part}"] for part in feature_map_arrays(description)}
    for part in ("landmarks", "whitening"):
        check_magnitude(f"{name}_{part}", parts[part])
    n_features = parts["mean"].shape[0] if parts["mean"].ndim else 0
    check_array(f"{name}_mean", parts["mean"], (n_features,))
    check_array(f"{name}_scale", parts["scale"], (n_features,))
    landmarks: Samples = parts["landmarks"]
    if description.get(HAS_SPARSE_LANDMARKS):
        landmarks = _read_sparse_landmarks(name, parts, n_features)
    else:
        check_array(f"{name}_landmarks", landmarks, (None, n_features))
    check_array(f"{name}_whitening", parts["whitening"], (landmarks.shape[0], None))
    gamma = description["gamma"]
    if not 0.0 <= gamma < np.inf:
        raise InvalidInputError(f"{name}: gamma must be finite and >= 0, got {gamma}")
    try:
        scaler = Scaler.restore(description["scaling"], parts["mean"], parts["scale"])
        return FeatureMap(scaler, description["kernel"], gamma, landmarks, parts["whitening"], serves=True)
    except InvalidParameterError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def _landmark_arrays(landmarks: Samples) -> dict[str, FloatArray]:
    if not is_sparse(landmarks):
        return {"landmarks": landmarks}
    columns, ends = landmarks.indices.astype(np.int64), landmarks.indptr[1:].astype(np.int64)
    return dict(zip(_SPARSE_LANDMARKS, (landmarks.data, columns, ends), strict=True))


def _read_sparse_landmarks(name: str, parts: Mapping[str, FloatArray], n_features: int) -> Samples:
    entries, columns, ends = (parts[part] for part in _SPARSE_LANDMARKS)
    check_array(f"{name}_landmarks", entries, (None,))
    for part, numbers, largest in (("columns", columns, n_features - 1), ("ends", ends, len(entries))):
        is_valid = numbers.dtype == np.int64 and numbers.ndim == 1
        if not (is_valid and ((numbers >= 0) & (numbers <= largest)).all()):
            raise InvalidInputError(f"{name}_landmark_{part} must hold integers from 0 to {largest}")
    row_ends = np.concatenate([[0], ends])
    if len(columns) != len(entries) or row_ends[-1] != len(entries) or (np.diff(row_ends) < 0).any():
        raise InvalidInputError(f"{name}_landmarks do not match their columns and ends")
    return scipy.sparse.csr_array((entries, columns, row_ends), shape=(len(ends), n_features))
