"""A trained model at query time: a scaling and a linear map for each modality."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from typing_extensions import override

from solver.evaluation.metrics import can_be_ranked
from solver.evaluation.splits import LabelledPair
from solver.linalg import (
    FloatArray,
    RowSpaceBasis,
    Samples,
    check_array,
    check_samples,
    dense_where_small,
    lift_factors,
)
from solver.losses.base import LOSSES
from solver.scaling.scaler import SCALINGS, Scaler
from solver.supervision.annotations import BoolArray
from solver.validation import InvalidInputError, OutOfRangeError, one_of

_MAP_ARRAYS = ("x_factors", "x_intercept", "z_factors", "z_intercept")
_ARRAY_NAMES = {*_MAP_ARRAYS, "x_mean", "x_scale", "z_mean", "z_scale"}

WEAK_PROBABILITY = 0.005  # that people read as no match, of methods that do not know how much a query says


class AffineMaps(Protocol):
    """What a projection needs of an estimator that was fitted, which needs scikit-learn itself."""

    x_factors_: FloatArray
    z_factors_: FloatArray
    x_intercept_: FloatArray
    z_intercept_: FloatArray


class SpacePart(NamedTuple):
    """Some dimensions of the common space, whose inner products are a part of every similarity."""

    name: str
    width: int
    values: tuple[str, ...] = ()  # of a facet, one for each dimension
    scale: float = 1.0  # root of its weight, by which the posteriors of these values are multiplied


class Projector(Protocol):
    """A trained model of any method at query time: two encoders into a common space of inner products."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        """Dimension of the common space."""

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples, rank) projections of raw features of the first modality, float32.

        A sample that is too large for the model's arithmetic has no finite projection: see `can_be_ranked`.
        """
        return self._project(X, "x")

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples, rank) projections of raw features of the second modality, float32.

        A sample that is too large for the model's arithmetic has no finite projection: see `can_be_ranked`.
        """
        return self._project(Z, "z")

    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        """Return the projections of one modality, "x" or "z"."""

    def project_query(self, sample: npt.ArrayLike, side: str = "x") -> tuple[FloatArray, bool]:
        """Return the projection of one sample, and whether it is like anything that was learned from."""
        return self._project(sample, side), True

    def project_words(self, samples: npt.ArrayLike, side: str = "x") -> FloatArray:
        """Return projections in which all but what samples are themselves is zero."""
        return np.zeros((check_samples(samples, "the array of samples").shape[0], self.rank), np.float32)

    def probability(
        self, similarities: FloatArray, queries: FloatArray | None = None, side: str = "x"
    ) -> FloatArray:
        """Return the estimated probability of a match for each similarity, see `match_probability`.

        Parameters
        ----------
        similarities : ndarray of shape (n_queries, n_gallery)
            Inner products of queries and a gallery.
        queries : ndarray of shape (n_queries, rank), optional
            The projected queries; `CompositeProjector` needs them, since how much one says decides what a
            match scores.
        side : {"x", "z"}
            Modality of the queries.
        """

    def arrays(self) -> dict[str, FloatArray]:
        """Return everything numeric, by name."""

    @property
    def n_features(self) -> tuple[int, int]:
        """Number of features of samples of both modalities."""

    @property
    def parts(self) -> tuple[SpacePart, ...]:
        """What the dimensions stand for, one part after the other: a single one where they have no names."""
        return (SpacePart("similarity", self.rank),)

    def knows_matches(self, side: str = "x") -> bool:
        """Return whether it was learned what matches queries of a modality: probabilities mean something."""
        return True

    def weak_probability(self, side: str = "x") -> float:
        """Return the probability of a best result below which none stands out, of queries of a modality."""
        return WEAK_PROBABILITY

    @property
    def facets(self) -> tuple[str, ...]:
        """Properties whose values move a sample's vector in a gallery."""
        return ()

    @property
    def uses_partners(self) -> bool:
        """Whether a sample's partners move its vector in a gallery."""
        return False

    @property
    def uses_words(self) -> bool:
        """Whether the names of what a sample carries move its vector, as a partner's text does."""
        return False

    def compose(self, projected: FloatArray, weights: FloatArray, is_across: BoolArray) -> FloatArray:
        """Return one query that several make together.

        Parameters
        ----------
        projected : ndarray of shape (n_queries, rank)
            Projections of queries of either modality, which count alike whatever their lengths are. Of a
            sample of a gallery, the facets of its vector there say more than its content does.
        weights : ndarray of shape (n_queries,)
            How much each counts; results are less like those of negative weight.
        is_across : ndarray of bool, shape (n_queries,)
            Whether each is of the other modality than the gallery. Where some are, a `CompositeProjector`
            takes from the others what they say of facets alone: all else would find those very samples.

        Returns
        -------
        ndarray of float32, shape (rank,)
        """
        lengths = np.linalg.norm(projected, axis=1)
        composed: FloatArray = (weights / np.where(lengths > 0.0, lengths, 1.0)) @ projected
        return composed.astype(np.float32)

    def place(
        self,
        projected: FloatArray,
        partners: FloatArray,
        values: Mapping[str, Sequence[Collection[str]]],
        words: FloatArray | None = None,
        side: str = "x",
    ) -> FloatArray:
        """Return vectors of samples of a modality for a gallery, by all that is known of them.

        Parameters
        ----------
        projected : ndarray of shape (n_samples, rank)
            Projections of their content.
        partners : ndarray of shape (n_samples, rank)
            Mean projection of each sample's partners of the other modality; NaN for a sample without any.
        values : mapping of str to sequence of collections of str
            Values that each sample carries, by facet; none where they are unknown.
        words : ndarray of shape (n_samples, rank), optional
            Mean projection of the names of what each sample carries, as samples of the modality that has
            words; NaN for a sample without any.
        side : {"x", "z"}
            Their modality.

        Returns
        -------
        ndarray of float32, shape (n_samples, rank)
        """
        return projected


@dataclass(frozen=True, slots=True, eq=False)
class AffineProjector(Projector):
    """Projects raw features of both modalities into a common space of inner products.

    Parameters
    ----------
    x_scaler, z_scaler : Scaler
        Fitted scalings of the raw features.
    x_factors : ndarray of shape (n_features_x, rank)
        ``U sqrt(S)`` of the bilinear matrix.
    z_factors : ndarray of shape (n_features_z, rank)
        ``V sqrt(S)`` of the bilinear matrix.
    x_intercept, z_intercept : ndarray of shape (rank,)
        Added after the linear maps.
    loss : {"logistic", "squared", "softmax"}
        Loss of the fit; it determines how a similarity becomes a probability.

    Raises
    ------
    InvalidInputError
        If an array is not a finite float array, the shapes are inconsistent, or the loss is unknown; the
        message names the part.
    """

    x_scaler: Scaler
    z_scaler: Scaler
    x_factors: FloatArray
    z_factors: FloatArray
    x_intercept: FloatArray
    z_intercept: FloatArray
    loss: str = "logistic"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InvalidInputError(f"loss must be one of {LOSSES}, got {self.loss!r:.100}")
        check_array("x_factors", self.x_factors, (len(self.x_scaler.mean_), None))
        check_array("z_factors", self.z_factors, (len(self.z_scaler.mean_), self.rank))
        check_array("x_intercept", self.x_intercept, (self.rank,))
        check_array("z_intercept", self.z_intercept, (self.rank,))

    @classmethod
    def of(
        cls,
        x_scaler: Scaler,
        z_scaler: Scaler,
        estimator: AffineMaps,
        bases: tuple[RowSpaceBasis | None, RowSpaceBasis | None] = (None, None),
    ) -> AffineProjector:
        """Combine fitted scalers with an estimator that was fitted on scaled samples.

        Parameters
        ----------
        x_scaler, z_scaler : Scaler
            Fitted to raw features.
        estimator : LinearCrossModalEstimator
            Fitted on scaled samples.
        bases : tuple of RowSpaceBasis or None
            In which its samples were given.
        """
        x_factors, z_factors = (
            lift_factors(basis, factors)
            for basis, factors in zip(bases, (estimator.x_factors_, estimator.z_factors_), strict=True)
        )
        return cls(
            x_scaler,
            z_scaler,
            x_factors.astype(np.float32),
            z_factors.astype(np.float32),
            estimator.x_intercept_.astype(np.float32),
            estimator.z_intercept_.astype(np.float32),
            getattr(estimator, "loss", "logistic"),
        )

    @property
    @override
    def rank(self) -> int:
        return int(self.x_factors.shape[1])

    @property
    @override
    def n_features(self) -> tuple[int, int]:
        return len(self.x_factors), len(self.z_factors)

    @property
    def x_scaling(self) -> str:
        """Kind of the first modality's scaling."""
        return self.x_scaler.kind_

    @property
    def z_scaling(self) -> str:
        """Kind of the second modality's scaling."""
        return self.z_scaler.kind_

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        scaler, factors, intercept = self.x_scaler, self.x_factors, self.x_intercept
        if side == "z":
            scaler, factors, intercept = self.z_scaler, self.z_factors, self.z_intercept

        def project(batch: Samples) -> FloatArray:
            projected: FloatArray = scaler.transform(dense_where_small(batch)) @ factors + intercept
            return projected

        return project_in_range(project, samples, self.rank)

    @override
    def probability(
        self, similarities: FloatArray, queries: FloatArray | None = None, side: str = "x"
    ) -> FloatArray:
        return match_probability(similarities, self.loss)

    @override
    def arrays(self) -> dict[str, FloatArray]:
        return {
            "x_mean": self.x_scaler.mean_,
            "x_scale": self.x_scaler.scale_,
            "z_mean": self.z_scaler.mean_,
            "z_scale": self.z_scaler.scale_,
            **{name: getattr(self, name) for name in _MAP_ARRAYS},
        }

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, FloatArray], x_scaling: str, z_scaling: str, loss: str = "logistic"
    ) -> AffineProjector:
        """Restore a projector from its `arrays`, the kinds of its scalings and its loss.

        Errors are as of `AffineProjector`; arrays that are missing or unknown are named, and so are scalings.
        """
        if set(arrays) != _ARRAY_NAMES:
            raise InvalidInputError(f"expected the arrays {sorted(_ARRAY_NAMES)}, got {sorted(arrays)}")
        scalers = {}
        for side, scaling in (("x", x_scaling), ("z", z_scaling)):
            n_features = len(arrays[f"{side}_factors"]) if arrays[f"{side}_factors"].ndim else 0
            check_array(f"{side}_mean", arrays[f"{side}_mean"], (n_features,))
            check_array(f"{side}_scale", arrays[f"{side}_scale"], (n_features,))
            one_of(*SCALINGS).check(f"{side}_scaling", scaling)
            scalers[side] = Scaler.restore(scaling, arrays[f"{side}_mean"], arrays[f"{side}_scale"])
        maps = {name: arrays[name] for name in _MAP_ARRAYS}
        return cls(scalers["x"], scalers["z"], **maps, loss=loss)


def project_in_range(
    project: Callable[[Samples], FloatArray], samples: npt.ArrayLike, rank: int, n_features: int | None = None
) -> FloatArray:
    """Return projections; those of samples out of the range of floats are NaN or infinite.
    `project` may raise OutOfRangeError."""
    checked = check_samples(samples, "the array of samples", n_features=n_features)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return project(checked)
    except OutOfRangeError as error:
        is_inside = ~error.is_outside
    projected = np.full((len(is_inside), rank), np.nan, np.float32)
    if is_inside.any():
        projected[is_inside] = project_in_range(project, checked[is_inside], rank)
    return projected


def project_what_can_be_ranked(
    projector: Projector, pair: LabelledPair
) -> tuple[FloatArray, FloatArray, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return projections of both modalities and their labels, without samples that cannot be ranked."""
    x, z = projector.project_x(pair.X), projector.project_z(pair.Z)
    x_rows, z_rows = can_be_ranked(x), can_be_ranked(z)
    return x[x_rows], z[z_rows], pair.x_labels[x_rows], pair.z_labels[z_rows]


def match_probability(similarities: FloatArray, loss: str) -> FloatArray:
    """Return a number in [0, 1] that increases with the similarity, a probability under some losses."""
    # Under "squared" the similarity itself estimates the probability of a match. Under "logistic" sigma(s)
    # does, as if matches were half of all pairs. Under "softmax" sigma(s) is not a probability: that loss
    # only compares a query's similarities with each other and does not determine their level.
    return np.clip(similarities, 0.0, 1.0) if loss == "squared" else expit(similarities)
