"""A trained `SemanticBilinear` at query time, and the file format of its ensembles.

That is named arrays, and a list of JSON objects, one for each classifier. A classifier is named by its
modality and its number in the list: ``x_2_coefficients`` belongs to ``x[2]``. The arrays of a feature map are
stored once, under the first classifier of its branch; ``map`` in each object is the number of that
classifier, its own number where it is missing. Classifiers of one branch are written next to each other, but
files of earlier versions end with the neighbour classifier, which is the one that has ``read_out_scale``, its
inverse temperature.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from solver.linalg import FloatArray, Samples, check_array, dense_where_small
from solver.logistic import LinearClassifier
from solver.losses.base import LOSSES
from solver.projector import Projector, match_probability, project_in_range
from solver.scaling import feature_maps
from solver.semantic.ensemble import Branch, Classifier, Ensemble, NeighbourClassifier, WeightedClassifier
from solver.supervision.annotations import LABEL, indicators_of, join_posteriors
from solver.validation import InvalidInputError

_LINEAR_ARRAYS = ("coefficients", "intercepts")
_NEIGHBOUR_ARRAYS = (*_LINEAR_ARRAYS, "anchors", "indicators")
_MAP = "map"
_INVERSE_TEMPERATURE = "read_out_scale"
_REQUIRED_FIELDS = {**feature_maps.DESCRIBED, "weight": float, "is_exclusive": bool}
_OPTIONAL_FIELDS = {_INVERSE_TEMPERATURE: float, feature_maps.HAS_SPARSE_LANDMARKS: bool, _MAP: int}

Description = Mapping[str, Any]  # the JSON object of one classifier


def ensemble_arrays(side: str, ensemble: Ensemble) -> dict[str, FloatArray]:
    """Return the arrays of an ensemble by name; `side` is "x" or "z"."""
    arrays: dict[str, FloatArray] = {}
    for first, branch in _numbered_branches(ensemble):
        feature_map = branch.feature_map
        parts = feature_maps.feature_map_parts(feature_map)
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
                **feature_maps.describe_feature_map(branch.feature_map),
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
        feature_maps.check_fields(f"{side}.{number}", description, _REQUIRED_FIELDS)
        present = {name: kind for name, kind in _OPTIONAL_FIELDS.items() if name in description}
        feature_maps.check_fields(f"{side}.{number}", description, present)
        first = description.get(_MAP, number)
        if first not in range(number + 1) or descriptions[first].get(_MAP, first) != first:
            raise InvalidInputError(f"{side}.{number}.{_MAP} must be the number of an earlier classifier")
    return descriptions


def array_names(side: str, descriptions: Sequence[Description]) -> Iterator[str]:
    """Return the names of the arrays that an ensemble with this description has."""
    for number, description in enumerate(descriptions):
        parts = _classifier_arrays(description)
        if description.get(_MAP, number) == number:
            parts += feature_maps.feature_map_arrays(description)
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
        feature_map = feature_maps.read_feature_map(f"{side}_{first}", descriptions[first], arrays)
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
        feature_maps.check_magnitude(f"{name}_{part}", array)
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


if TYPE_CHECKING:
    from solver.semantic.estimator import SemanticBilinear  # training code, which a query does not need

_WEIGHT_TOLERANCE = 1e-6  # weights are sums of a few float64 fractions: far more than their rounding


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorProjector(Projector):
    """Projects raw features of both modalities, through class posteriors, into one space of inner products.

    Parameters
    ----------
    x_ensemble, z_ensemble : Ensemble
        Class posteriors of both modalities.
    x_factors, z_factors : ndarray of shape (n_classes, rank)
        ``U sqrt(S)`` and ``V sqrt(S)`` of the bilinear matrix.
    loss : {"logistic", "squared", "softmax"}
        Loss that the bilinear matrix was fitted with; determines how a similarity becomes a probability.
    classes : tuple of str
        Their names, by which samples of a gallery that carry labels are placed; none in files of earlier
        releases, whose samples are placed by content alone.

    Raises
    ------
    InvalidInputError
        If a part does not match the others; the message names it.
    """

    x_ensemble: Ensemble
    z_ensemble: Ensemble
    x_factors: FloatArray
    z_factors: FloatArray
    loss: str
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InvalidInputError(f"loss must be one of {LOSSES}, got {self.loss!r}")
        check_array("x_factors", self.x_factors, (None, None))
        check_array("z_factors", self.z_factors, (None, self.rank))
        for name, factors in (("x_factors", self.x_factors), ("z_factors", self.z_factors)):
            if np.abs(factors).max(initial=0.0) > feature_maps.MAX_MAGNITUDE:
                raise InvalidInputError(
                    f"{name} must not exceed {feature_maps.MAX_MAGNITUDE:g}: similarities would overflow"
                )
        _check_ensemble("x", self.x_ensemble, len(self.x_factors))
        _check_ensemble("z", self.z_ensemble, len(self.z_factors))
        if len(self.classes) not in (0, len(self.x_factors)):
            raise InvalidInputError(
                f"classes must be the {len(self.x_factors)} of x_factors, got {len(self.classes)}"
            )

    @classmethod
    def of(cls, estimator: SemanticBilinear) -> PosteriorProjector:
        """Return the projector of a fitted estimator."""
        ensembles = estimator.x_posteriors_.ensemble, estimator.z_posteriors_.ensemble
        bilinear = estimator.bilinear_
        classes = getattr(estimator, "classes_", ())  # those of earlier releases have none
        if bilinear is None:
            # The inner product of posteriors is a probability, as is what the squared loss fits.
            identity = np.eye(estimator.rank_, dtype=np.float32)
            return cls(*ensembles, identity, identity, "squared", classes)
        x_factors, z_factors = bilinear.x_factors_, bilinear.z_factors_
        factors = x_factors.astype(np.float32), z_factors.astype(np.float32)
        return cls(*ensembles, *factors, bilinear.loss, classes)

    @property
    @override
    def rank(self) -> int:
        return int(self.x_factors.shape[1])

    @property
    @override
    def n_features(self) -> tuple[int, int]:
        x, z = (side.branches[0].feature_map.n_features for side in (self.x_ensemble, self.z_ensemble))
        return x, z

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        ensemble, factors = self.x_ensemble, self.x_factors
        if side == "z":
            ensemble, factors = self.z_ensemble, self.z_factors

        def project(batch: Samples) -> FloatArray:
            return ensemble.predict(dense_where_small(batch)).astype(np.float32) @ factors

        return project_in_range(project, samples, self.rank)

    @property
    @override
    def facets(self) -> tuple[str, ...]:
        return (LABEL,) if self.classes else ()

    @override
    def place(
        self,
        projected: FloatArray,
        partners: FloatArray,
        values: Mapping[str, Sequence[Collection[str]]],
        words: FloatArray | None = None,
        side: str = "x",
    ) -> FloatArray:
        placed = np.array(projected, np.float32)
        if not self.classes or LABEL not in values:
            return placed
        carried = indicators_of(values[LABEL], self.classes)
        rows = np.flatnonzero(carried.any(axis=1))
        # Of a matrix of lower rank than there are classes these are the smallest posteriors that fit: columns
        # of factors are orthogonal, and the general pseudo-inverse of those of many classes takes seconds.
        factors = self.x_factors if side == "x" else self.z_factors
        squares = np.maximum((factors.astype(np.float64) ** 2).sum(axis=0), np.finfo(np.float32).tiny)
        posteriors = (placed[rows] / squares) @ factors.T
        is_exclusive = self.x_ensemble.members[0].classifier.is_exclusive
        placed[rows] = join_posteriors(posteriors, carried[rows], is_exclusive) @ factors
        return placed

    @override
    def probability(
        self, similarities: FloatArray, queries: FloatArray | None = None, side: str = "x"
    ) -> FloatArray:
        return match_probability(similarities, self.loss)

    @override
    def arrays(self) -> dict[str, FloatArray]:
        return {
            "x_factors": self.x_factors,
            "z_factors": self.z_factors,
            **ensemble_arrays("x", self.x_ensemble),
            **ensemble_arrays("z", self.z_ensemble),
        }

    def describe(self) -> dict[str, Any]:
        """Return everything that is not an array, as JSON values."""
        return {
            "loss": self.loss,
            "x": describe_ensemble(self.x_ensemble),
            "z": describe_ensemble(self.z_ensemble),
            "classes": list(self.classes),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, FloatArray], described: Mapping[str, Any]
    ) -> PosteriorProjector:
        """Rebuild a projector from the results of its methods `arrays` and `describe`.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            As returned by `arrays`.
        described : mapping
            As returned by `describe`, or read from an untrusted file.

        Raises
        ------
        InvalidInputError
            If something is missing, unexpected or does not match; the message names it.
        """
        x = check_description("x", described.get("x"))
        z = check_description("z", described.get("z"))
        classes = described.get("classes", [])
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise InvalidInputError(f"classes must be a list of str, got {classes!r:.100}")
        expected = {"x_factors", "z_factors", *array_names("x", x), *array_names("z", z)}
        if set(arrays) != expected:
            raise InvalidInputError(f"expected the arrays {sorted(expected)}, got {sorted(arrays)}")
        return cls(
            read_ensemble("x", x, arrays),
            read_ensemble("z", z, arrays),
            arrays["x_factors"],
            arrays["z_factors"],
            described["loss"],
            tuple(classes),
        )


def _check_ensemble(side: str, ensemble: Ensemble, n_classes: int) -> None:
    """Check that classifiers take the same features, predict the same classes, and weigh one together."""
    members = ensemble.members
    if not members:
        raise InvalidInputError(f"{side} must have at least one classifier")
    expected, number = ensemble.branches[0].feature_map.n_features, 0
    for branch in ensemble.branches:
        n_features = branch.feature_map.n_features
        if n_features != expected:
            raise InvalidInputError(
                f"{side}_{number}_mean must have the {expected} features of {side}_0, got {n_features}"
            )
        number += len(branch.classifiers)
    for number, member in enumerate(members):
        if not member.weight > 0.0:
            raise InvalidInputError(f"{side}_{number}: weight must be > 0, got {member.weight}")
        if member.classifier.is_exclusive != members[0].classifier.is_exclusive:
            raise InvalidInputError(f"{side}_{number}: is_exclusive must be the same as of {side}_0")
        if member.classifier.n_classes != n_classes:
            raise InvalidInputError(
                f"{side}_{number} must have the {n_classes} classes of {side}_factors, "
                f"got {member.classifier.n_classes}"
            )
    total = sum(member.weight for member in members)
    if not abs(total - 1.0) <= _WEIGHT_TOLERANCE:
        raise InvalidInputError(f"{side}: the weights must sum to 1, got {total}")
