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

from solver.linalg.matrices import FloatArray
from solver.linalg.samples import check_array
from solver.logistic import LinearClassifier
from solver.scaling.feature_maps import (
    HAS_SPARSE_LANDMARKS,
    check_magnitude,
    describe_feature_map,
    feature_map_arrays,
    feature_map_parts,
    read_feature_map,
)
from solver.semantic.ensemble import Branch, Classifier, Ensemble, WeightedClassifier
from solver.semantic.neighbours import NeighbourClassifier
from solver.validation.errors import InvalidInputError

_LINEAR_ARRAYS = ("coefficients", "intercepts")
_NEIGHBOUR_ARRAYS = (*_LINEAR_ARRAYS, "anchors", "indicators")
_MAP = "map"
_INVERSE_TEMPERATURE = "read_out_scale"
_REQUIRED_FIELDS = {"scaling": str, "kernel": str, "gamma": float, "weight": float, "is_exclusive": bool}
_OPTIONAL_FIELDS = {_INVERSE_TEMPERATURE: float, HAS_SPARSE_LANDMARKS: bool, _MAP: int}

Description = Mapping[str, Any]  # the JSON object of one classifier


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
    """Return the JSON objects of an ensemble; InvalidInputError if a field is missing, of another type, or
    `map` does not name the first classifier of a branch."""
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
    """Rebuild an ensemble from a checked description and all of `array_names` (others may be beside them).
    InvalidInputError names an array or value that is invalid."""
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


def _classifier_arrays(description: Description) -> tuple[str, ...]:
    return _NEIGHBOUR_ARRAYS if _INVERSE_TEMPERATURE in description else _LINEAR_ARRAYS


def _read_classifier(
    name: str, description: Description, arrays: Mapping[str, FloatArray], n_mapped: int
) -> Classifier:
    parts = {part: arrays[f"{name}_{part}"] for part in _classifier_arrays(description)}
    for part, array in parts.items():
        check_magnitude(f"{name}_{part}", array)
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
