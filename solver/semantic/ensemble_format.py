"""The file format of an ensemble: named arrays, and a list of JSON objects, one for each classifier.

A classifier is named by its modality and its number in the list: ``x_2_coefficients`` belongs to ``x[2]``.
The arrays of a feature map are stored once, under the first classifier of its branch; ``map`` in each object
is the number of that classifier, its own number where it is missing. Classifiers of one branch are written
next to each other, but files of earlier versions end with the neighbour classifier, which is the one that
has ``read_out_scale``, its inverse temperature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.logistic import LinearClassifier
from solver.projector import check_array
from solver.scaling.scaler import Scaler
from solver.semantic.ensemble import Branch, Classifier, Ensemble, WeightedClassifier
from solver.semantic.feature_maps import FeatureMap
from solver.semantic.neighbours import NeighbourClassifier
from solver.validation.errors import InvalidInputError, InvalidParameterError

MAX_MAGNITUDE = 1e15
"""Largest landmark, whitening, coefficient or factor: sums of its squares are finite, even in float32."""

_SCALER_ARRAYS = ("mean", "scale")
_DENSE_LANDMARKS = ("landmarks",)
_SPARSE_LANDMARKS = ("landmarks", "landmark_columns", "landmark_ends")
"""Entries that are not zero, the column of each, and the end of each row among them."""
_LINEAR_ARRAYS = ("coefficients", "intercepts")
_NEIGHBOUR_ARRAYS = (*_LINEAR_ARRAYS, "anchors", "indicators")
_BOUNDED_ARRAYS = frozenset({"landmarks", "whitening", *_NEIGHBOUR_ARRAYS})

_MAP = "map"
_INVERSE_TEMPERATURE = "read_out_scale"
_HAS_SPARSE_LANDMARKS = "has_sparse_landmarks"
_REQUIRED_FIELDS = {"scaling": str, "kernel": str, "gamma": float, "weight": float, "is_exclusive": bool}
_OPTIONAL_FIELDS = {_INVERSE_TEMPERATURE: float, _HAS_SPARSE_LANDMARKS: bool, _MAP: int}

Description = Mapping[str, Any]
"""The JSON object of one classifier."""


def ensemble_arrays(side: str, ensemble: Ensemble) -> dict[str, FloatArray]:
    """Return the arrays of an ensemble by name; `side` is "x" or "z"."""
    arrays: dict[str, FloatArray] = {}
    for first, branch in _numbered_branches(ensemble):
        feature_map = branch.feature_map
        parts = feature_map_parts(feature_map)
        arrays |= {f"{side}_{first}_{part}": array for part, array in parts.items()}
        for number, member in enumerate(branch.classifiers, first):
            is_neighbour = isinstance(member.classifier, NeighbourClassifier)
            for part in _NEIGHBOUR_ARRAYS if is_neighbour else _LINEAR_ARRAYS:
                arrays[f"{side}_{number}_{part}"] = getattr(member.classifier, part)
    return arrays


def describe_ensemble(ensemble: Ensemble) -> list[dict[str, Any]]:
    """Return everything that is not an array, as JSON values."""
    descriptions: list[dict[str, Any]] = []
    for first, branch in _numbered_branches(ensemble):
        for member in branch.classifiers:
            description: dict[str, Any] = {
                _MAP: first,
                **describe_feature_map(branch.feature_map),
                "weight": member.weight,
                "is_exclusive": member.classifier.is_exclusive,
            }
            if isinstance(member.classifier, NeighbourClassifier):
                description[_INVERSE_TEMPERATURE] = member.classifier.inverse_temperature
            descriptions.append(description)
    return descriptions


def check_description(side: str, descriptions: Any) -> Sequence[Description]:
    """Return the JSON objects of an ensemble after checking the types of their fields.

    Raises
    ------
    InvalidInputError
        If a field is missing or of another type, or `map` does not name the first classifier of a branch.
    """
    if not isinstance(descriptions, list):
        raise InvalidInputError(f"{side} must be a list of classifiers, got {descriptions!r:.100}")
    for number, description in enumerate(descriptions):
        for name, kind in _REQUIRED_FIELDS.items():
            if not isinstance(description, dict) or type(description.get(name)) is not kind:
                raise InvalidInputError(f"{side}.{number}.{name} must be of type {kind.__name__}")
        for name, kind in _OPTIONAL_FIELDS.items():
            if name in description and type(description[name]) is not kind:
                raise InvalidInputError(f"{side}.{number}.{name} must be of type {kind.__name__}")
        first = description.get(_MAP, number)
        if first not in range(number + 1) or descriptions[first].get(_MAP, first) != first:
            raise InvalidInputError(f"{side}.{number}.{_MAP} must be the number of an earlier classifier")
    return descriptions


def array_names(side: str, descriptions: Sequence[Description]) -> Iterator[str]:
    """Return the names of the arrays that an ensemble with this description has."""
    for number, description in enumerate(descriptions):
        parts = _classifier_arrays(description)
        if description.get(_MAP, number) == number:
            parts += feature_map_arrays(description)
        yield from (f"{side}_{number}_{part}" for part in parts)


def read_ensemble(
    side: str, descriptions: Sequence[Description], arrays: Mapping[str, FloatArray]
) -> Ensemble:
    """Rebuild an ensemble from its description and arrays.

    Parameters
    ----------
    side : {"x", "z"}
        Modality; begins the names of its arrays.
    descriptions : sequence of mapping
        As returned by `check_description`.
    arrays : mapping of str to ndarray
        All of `array_names`; may hold others.

    Raises
    ------
    InvalidInputError
        If an array or a value is invalid; the message names it.
    """
    numbers_of_branch: dict[int, list[int]] = {}
    for number, description in enumerate(descriptions):
        numbers_of_branch.setdefault(description.get(_MAP, number), []).append(number)
    branches: list[Branch] = []
    for first, numbers in numbers_of_branch.items():
        feature_map = read_feature_map(f"{side}_{first}", descriptions[first], arrays)
        members = [
            WeightedClassifier(
                _read_classifier(f"{side}_{number}", descriptions[number], arrays, feature_map.n_mapped),
                descriptions[number]["weight"],
            )
            for number in numbers
        ]
        branches.append(Branch(feature_map, tuple(members)))
    return Ensemble(tuple(branches))


def _numbered_branches(ensemble: Ensemble) -> Iterator[tuple[int, Branch]]:
    """Return each branch with the number of its first classifier in the list of all."""
    first = 0
    for branch in ensemble.branches:
        yield first, branch
        first += len(branch.classifiers)


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
        description[_HAS_SPARSE_LANDMARKS] = True
    return description


def feature_map_arrays(description: Description) -> tuple[str, ...]:
    """Return the ends of the names of the arrays that a feature map with this description has."""
    landmarks = _SPARSE_LANDMARKS if description.get(_HAS_SPARSE_LANDMARKS) else _DENSE_LANDMARKS
    return (*_SCALER_ARRAYS, "whitening", *landmarks)


def _classifier_arrays(description: Description) -> tuple[str, ...]:
    return _NEIGHBOUR_ARRAYS if _INVERSE_TEMPERATURE in description else _LINEAR_ARRAYS


def _take_parts(name: str, parts: tuple[str, ...], arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the parts of a classifier or feature map, none with entries whose sums would overflow."""
    taken = {part: arrays[f"{name}_{part}"] for part in parts}
    for part in taken.keys() & _BOUNDED_ARRAYS:
        if np.abs(taken[part]).max(initial=0.0) > MAX_MAGNITUDE:
            raise InvalidInputError(
                f"{name}_{part} must not exceed {MAX_MAGNITUDE:g}: sums of it would overflow"
            )
    return taken


def read_feature_map(name: str, description: Description, arrays: Mapping[str, FloatArray]) -> FeatureMap:
    """Rebuild a feature map whose arrays begin with this name; raises InvalidInputError."""
    parts = _take_parts(name, feature_map_arrays(description), arrays)
    n_features = parts["mean"].shape[0] if parts["mean"].ndim else 0
    check_array(f"{name}_mean", parts["mean"], (n_features,))
    check_array(f"{name}_scale", parts["scale"], (n_features,))
    landmarks: Samples = parts["landmarks"]
    if description.get(_HAS_SPARSE_LANDMARKS):
        landmarks = _read_sparse_landmarks(name, parts, n_features)
    else:
        check_array(f"{name}_landmarks", landmarks, (None, n_features))
    check_array(f"{name}_whitening", parts["whitening"], (landmarks.shape[0], None))
    gamma = description["gamma"]
    if not 0.0 <= gamma < np.inf:
        raise InvalidInputError(f"{name}: gamma must be finite and >= 0, got {gamma}")
    try:
        scaler = Scaler.restore(description["scaling"], parts["mean"], parts["scale"])
        return FeatureMap(scaler, description["kernel"], gamma, landmarks, parts["whitening"])
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


def _read_classifier(
    name: str, description: Description, arrays: Mapping[str, FloatArray], n_mapped: int
) -> Classifier:
    parts = _take_parts(name, _classifier_arrays(description), arrays)
    check_array(f"{name}_coefficients", parts["coefficients"], (n_mapped, None))
    n_scores, is_exclusive = parts["coefficients"].shape[1], description["is_exclusive"]
    check_array(f"{name}_intercepts", parts["intercepts"], (n_scores,))
    if _INVERSE_TEMPERATURE not in description:
        return LinearClassifier(**parts, is_exclusive=is_exclusive)
    check_array(f"{name}_anchors", parts["anchors"], (None, n_scores))
    check_array(f"{name}_indicators", parts["indicators"], (len(parts["anchors"]), None))
    try:
        return NeighbourClassifier(
            **parts, inverse_temperature=description[_INVERSE_TEMPERATURE], is_exclusive=is_exclusive
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error
