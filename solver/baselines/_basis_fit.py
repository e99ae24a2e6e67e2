"""How the baselines are fitted that look for directions among the principal axes of both modalities."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy.typing as npt
from typing_extensions import override

from solver.base import CrossModalEstimator
from solver.baselines._bases import Bases, CentredBasis
from solver.baselines._linear import LinearBaseline
from solver.linalg.matrices import FloatArray
from solver.logistic import class_targets
from solver.supervision.conversion import AnyLabels
from solver.supervision.signed_pairs import AnySupervision
from solver.supervision.sizes import check_sizes


class BasisEstimator(CrossModalEstimator):
    """Base of the methods whose `fit` takes the bases of both modalities, if the caller already has them."""

    _needs_classes: ClassVar[bool] = False  # whether the supervision has to be `Labels` or `MultiLabels`

    @override
    def fit(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: AnyLabels = None,
        *,
        bases: Bases | None = None,
    ) -> Self:
        """Learn the two projections.

        Parameters
        ----------
        X, Z : array-like, sparse array or data frame of shape (n_samples, n_features)
            Both modalities; made dense.
        supervision : Labels, MultiLabels, PairedRows, SignedPairs, array-like, tuple or None
            Which pairs are similar, as in `LowRankBilinear.fit`; a method of classes needs labels.
        bases : tuple of CentredBasis, optional
            Bases of X and Z, if the caller already has them; computed if omitted.

        Raises
        ------
        InvalidParameterError, InvalidInputError, SupervisionError
            If a parameter is out of range, an array unusable, or the supervision of other samples or of
            another kind than is needed.
        """
        x, z, checked = self._check_inputs(X, Z, supervision)
        if self._needs_classes:
            class_targets(checked, type(self).__name__)  # now rather than after the bases
        self._fit(x, z, checked, bases)
        return self

    @abstractmethod
    def _fit(
        self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnySupervision, bases: Bases | None
    ) -> None:
        """Learn the two projections with checked parameters."""


class BasisBaseline(BasisEstimator, LinearBaseline):
    """Base of the linear methods that look for directions among the principal axes of both modalities."""

    @override
    def _fit(
        self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnySupervision, bases: Bases | None
    ) -> None:
        x, z = bases or (CentredBasis.of(X, "X"), CentredBasis.of(Z, "Z"))
        check_sizes(x.coordinates, z.coordinates, supervision)
        left, right = self._learn_directions(x, z, supervision)
        self._keep(x.lift(left), z.lift(right))

    @abstractmethod
    def _learn_directions(
        self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision
    ) -> tuple[FloatArray, FloatArray]:
        """Return the directions of either modality, one a column, in the coordinates of its basis."""
