"""A trained `SemanticBilinear` at query time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from solver.linalg.matrices import FloatArray, Samples
from solver.linalg.samples import check_array
from solver.losses.base import LOSSES
from solver.projector import Projector, match_probability, project_in_range
from solver.scaling.feature_maps import MAX_MAGNITUDE
from solver.semantic.ensemble import Ensemble
from solver.semantic.ensemble_format import (
    array_names,
    check_description,
    describe_ensemble,
    ensemble_arrays,
    read_ensemble,
)
from solver.validation.errors import InvalidInputError

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

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InvalidInputError(f"loss must be one of {LOSSES}, got {self.loss!r}")
        check_array("x_factors", self.x_factors, (None, None))
        check_array("z_factors", self.z_factors, (None, self.rank))
        for name, factors in (("x_factors", self.x_factors), ("z_factors", self.z_factors)):
            if np.abs(factors).max(initial=0.0) > MAX_MAGNITUDE:
                raise InvalidInputError(
                    f"{name} must not exceed {MAX_MAGNITUDE:g}: similarities would overflow"
                )
        _check_ensemble("x", self.x_ensemble, len(self.x_factors))
        _check_ensemble("z", self.z_ensemble, len(self.z_factors))

    @classmethod
    def of(cls, estimator: SemanticBilinear) -> PosteriorProjector:
        """Return the projector of a fitted estimator."""
        ensembles = estimator.x_posteriors_.ensemble, estimator.z_posteriors_.ensemble
        bilinear = estimator.bilinear_
        if bilinear is None:
            # The inner product of posteriors is a probability, as is what the squared loss fits.
            identity = np.eye(estimator.rank_, dtype=np.float32)
            return cls(*ensembles, identity, identity, "squared")
        x_factors, z_factors = bilinear.x_factors_, bilinear.z_factors_
        return cls(*ensembles, x_factors.astype(np.float32), z_factors.astype(np.float32), bilinear.loss)

    @property
    @override
    def rank(self) -> int:
        return int(self.x_factors.shape[1])

    @override
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        return _project(self.x_ensemble, X, self.x_factors)

    @override
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        return _project(self.z_ensemble, Z, self.z_factors)

    @override
    def probability(self, similarities: FloatArray) -> FloatArray:
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
        expected = {"x_factors", "z_factors", *array_names("x", x), *array_names("z", z)}
        if set(arrays) != expected:
            raise InvalidInputError(f"expected the arrays {sorted(expected)}, got {sorted(arrays)}")
        return cls(
            read_ensemble("x", x, arrays),
            read_ensemble("z", z, arrays),
            arrays["x_factors"],
            arrays["z_factors"],
            described["loss"],
        )


def _project(ensemble: Ensemble, samples: npt.ArrayLike, factors: FloatArray) -> FloatArray:
    def project(batch: Samples) -> FloatArray:
        projected: FloatArray = ensemble.predict(batch).astype(np.float32) @ factors
        return projected

    return project_in_range(project, samples, factors.shape[1])


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
