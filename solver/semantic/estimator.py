"""A bilinear similarity of class posteriors."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from solver.base import CrossModalEstimator
from solver.bilinear.estimator import LowRankBilinear
from solver.errors import InvalidInputError, SupervisionError
from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.linalg.row_space import most_compact
from solver.linalg.samples import check_samples
from solver.logistic import Targets
from solver.losses.base import LOSSES
from solver.parameters import (
    COUNT,
    FRACTION,
    N_FOLDS,
    POSITIVE,
    SEED,
    Rule,
    integer_from,
    number_within,
    one_of,
    optional,
    some_of,
)
from solver.progress import Progress, StepProgress
from solver.scaling import SCALINGS
from solver.semantic.ensemble import Posteriors, Recipe
from solver.semantic.feature_maps import KERNELS
from solver.semantic.fusion import FusionOptions, Side, fuse
from solver.semantic.neighbours import LARGEST_SCALE
from solver.semantic.search import SearchOptions, fit_posteriors
from solver.supervision.base import Supervision
from solver.supervision.labels import Labels
from solver.supervision.multi_labels import MultiLabels

_FEW_FEATURES = 256
"""Sparse samples with no more of them are made dense: they may have any kernel."""


class SemanticBilinear(CrossModalEstimator):
    """Bilinear similarity ``p(x)^T M q(z)`` of class posteriors, with a nuclear-norm penalty on M.

    That two samples are of the same class is no bilinear function of their features, but its probability is
    one of their class posteriors: ``P(same | x, z) = sum_c p(c|x) p(c|z)``. So each modality learns
    posteriors first (an average of logistic regressions on kernel feature maps, chosen by held-out
    likelihood: `solver.semantic.search`), and M is then fitted as in `LowRankBilinear`, on posteriors
    that were predicted out of fold, so that it sees how far they can be trusted.

    A share of the posteriors is read out of a second bilinear similarity, with the softmax loss, on the
    feature maps themselves: a sample is of the classes of those samples of the other modality that it
    resembles (`solver.semantic.fusion`; that similarity is stopped early, and not certified). So it has
    learned from both modalities, where a classifier sees one.

    Parameters
    ----------
    loss : {"squared", "logistic", "softmax"}
        Of the similarity, see `LowRankBilinear`. With "squared" M is the identity where the posteriors
        are calibrated.
    alpha_fraction : float in (0, 1)
        Penalty weight as a share of `alpha_max`.
    scalings : tuple of str
        Kinds of `FeatureScaler` to try.
    kernels : tuple of {"linear", "rbf", "laplacian"}
        Kinds of `FeatureMap` to try; "laplacian" only with at most 256 features.
    n_landmarks : int, >= 1
        Landmarks of the kernel maps.
    n_folds : int, >= 2
        Parts of the samples that are held out in turn, where classes have as many samples.
    n_kept : int, >= 1
        Feature maps, of all that are tried, on which logistic regressions are fitted.
    n_rounds : int, >= 1
        Classifiers in the average, counted with repetition.
    max_samples : int, >= 10
        Samples of a modality on which the choice is made and that a read-out rests on; the chosen
        classifiers are fitted on all. Of sparse samples with many features at most as many are taken as
        can be made dense within 1 GiB in float64, at least 11 585.
    read_out : float in [0, 1)
        Share of the posteriors that is read out of a similarity; 0 for none.
    read_out_scale : float in (0, 1e4]
        How sharply it tells similarities apart.
    tol : float, > 0
        Relative duality gap of M.
    random_state : int, >= 0
        Seed of folds and landmarks.
    n_jobs : int or None
        Classifiers fitted at once; as many as there are cores when None, and one on sparse samples that are
        too many to be made dense. The result does not depend on it.

    Attributes
    ----------
    x_posteriors_, z_posteriors_ : Posteriors
        Of both modalities.
    bilinear_ : LowRankBilinear
        M, with its certificate.
    singular_values_ : ndarray of shape (rank,)
        Of M, in descending order.
    rank_ : int
        Dimension of the common space.

    Notes
    -----
    Equal classes are what it learns from: `Labels`, or `MultiLabels` with a posterior for each label.

    Examples
    --------
    >>> from solver import Labels, SemanticBilinear, make_low_rank_pairs
    >>> data = make_low_rank_pairs(n_samples_x=60, n_samples_z=50, random_state=0)
    >>> supervision = Labels(data.x_labels, data.z_labels)
    >>> model = SemanticBilinear(kernels=("linear",)).fit(data.X, data.Z, supervision)
    >>> model.similarity(data.X, data.Z).shape
    (60, 50)
    """

    x_posteriors_: Posteriors
    z_posteriors_: Posteriors

    _fitted_attribute = "bilinear_"
    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "loss": one_of(*LOSSES),
        "alpha_fraction": FRACTION,
        "scalings": some_of(*SCALINGS),
        "kernels": some_of(*KERNELS),
        "n_landmarks": COUNT,
        "n_folds": N_FOLDS,
        "n_kept": COUNT,
        "n_rounds": COUNT,
        "max_samples": integer_from(10),
        "read_out": number_within(0.0, 1.0, closed="left"),
        "read_out_scale": number_within(0.0, LARGEST_SCALE, closed="right"),
        "tol": POSITIVE,
        "random_state": SEED,
        "n_jobs": optional(COUNT),
    }

    def __init__(
        self,
        *,
        loss: str = "squared",
        alpha_fraction: float = 1e-3,
        scalings: tuple[str, ...] = ("standard", "l2", "sqrt"),
        kernels: tuple[str, ...] = KERNELS,
        n_landmarks: int = 400,
        n_folds: int = 5,
        n_kept: int = 6,
        n_rounds: int = 8,
        max_samples: int = 3000,
        read_out: float = 0.1,
        read_out_scale: float = 2.0,
        tol: float = 1e-3,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.loss = loss
        self.alpha_fraction = alpha_fraction
        self.scalings = scalings
        self.kernels = kernels
        self.n_landmarks = n_landmarks
        self.n_folds = n_folds
        self.n_kept = n_kept
        self.n_rounds = n_rounds
        self.max_samples = max_samples
        self.read_out = read_out
        self.read_out_scale = read_out_scale
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: Supervision,
        *,
        callback: Callable[[Progress], None] | None = None,
        like: SemanticBilinear | None = None,
    ) -> Self:
        """Learn the posteriors, then M.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_samples_x, n_features_x)
            First modality. Not modified; sparse ones stay sparse where they have many features.
        Z : array-like or sparse array of shape (n_samples_z, n_features_z)
            Second modality. Not modified; sparse ones stay sparse where they have many features.
        supervision : Labels or MultiLabels
            Their classes.
        callback : callable, optional
            Called with a `StepProgress` before each step of the search for posteriors, and with an
            `IterationProgress` after each iteration on M; an exception it raises ends the fit.
        like : SemanticBilinear or None
            Fitted on samples of the same kind: its classifiers are fitted anew, and none is sought unless
            samples or parameters do not allow one of them.

        Raises
        ------
        InvalidParameterError, InvalidInputError
            If parameters or arrays are not as described, or no feature map that may be tried suits them.
        SupervisionError
            If the supervision names no classes, or not one for each sample, or if most samples are the only
            one of their class.
        """
        self._check_parameters()
        numbers = itertools.count(1)

        def heartbeat() -> None:
            if callback is not None:
                callback(StepProgress(next(numbers)))

        sides = check_features(X, "X"), check_features(Z, "Z")
        recipes: list[tuple[Recipe, ...]] = [(), ()]
        if like is not None:
            like._check_fitted()
            recipes = [like.x_posteriors_.recipes, like.z_posteriors_.recipes]
        # One number for both modalities, whose rows are drawn together where they are pairs.
        bounds = (most_compact(samples.shape[1]) for samples in sides if is_sparse(samples))
        max_samples = min([self.max_samples, *bounds])
        of_classifiers = [
            Side(samples, targets, self._fit_side(name, samples, targets, max_samples, heartbeat, chosen))
            for name, samples, targets, chosen in zip(
                "XZ", sides, _targets(supervision), recipes, strict=True
            )
        ]
        options = FusionOptions(
            float(self.read_out),
            float(self.read_out_scale),
            max_samples,
            self.random_state,
            self._n_jobs(),
        )
        posteriors = fuse(of_classifiers[0], of_classifiers[1], supervision, options, heartbeat)
        x, z = (each.out_of_fold for each in posteriors)
        bilinear = LowRankBilinear(
            alpha_fraction=self.alpha_fraction,
            loss=self.loss,
            tol=self.tol,
            fit_intercept=False,
            n_threads=self.n_jobs,
        )
        self.bilinear_ = bilinear.fit(x, z, supervision, callback=callback)
        self.x_posteriors_, self.z_posteriors_ = posteriors
        self.n_features_x_, self.n_features_z_ = (samples.shape[1] for samples in sides)
        return self

    @property
    def singular_values_(self) -> FloatArray:
        """Singular values of M."""
        self._check_fitted()
        return self.bilinear_.singular_values_

    @property
    def rank_(self) -> int:
        """Rank of M."""
        self._check_fitted()
        return self.bilinear_.rank_

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples_x, rank) projections of samples of the first modality, float32."""
        self._check_fitted()
        return self.bilinear_.project_x(self._predict_x(X))

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples_z, rank) projections of samples of the second modality, float32."""
        self._check_fitted()
        return self.bilinear_.project_z(self._predict_z(Z))

    def _predict_x(self, X: npt.ArrayLike) -> FloatArray:
        return self.x_posteriors_.predict(check_features(X, "X", self.n_features_x_))

    def _predict_z(self, Z: npt.ArrayLike) -> FloatArray:
        return self.z_posteriors_.predict(check_features(Z, "Z", self.n_features_z_))

    def _fit_side(
        self,
        name: str,
        samples: Samples,
        targets: Targets,
        max_samples: int,
        heartbeat: Callable[[], None],
        recipes: Sequence[Recipe],
    ) -> Posteriors:
        if samples.shape[0] != len(targets.indicators):
            raise SupervisionError(
                f"{name} has {samples.shape[0]} samples, the supervision has {len(targets.indicators)}"
            )
        options = SearchOptions(
            scalings=self.scalings,
            kernels=self.kernels,
            n_landmarks=self.n_landmarks,
            n_folds=self.n_folds,
            n_kept=self.n_kept,
            n_rounds=self.n_rounds,
            max_samples=max_samples,
            seed=self.random_state,
            n_jobs=self._n_jobs(),
        )
        return fit_posteriors(samples, targets, options, heartbeat, recipes)

    def _n_jobs(self) -> int:
        return self.n_jobs or os.cpu_count() or 1


def _targets(supervision: Supervision) -> tuple[Targets, Targets]:
    if isinstance(supervision, Labels):
        identity = np.eye(len(supervision.classes))
        return (
            Targets(identity[supervision.x_targets], True),
            Targets(identity[supervision.z_targets], True),
        )
    if isinstance(supervision, MultiLabels):
        return (
            Targets(supervision.x_targets.astype(np.float64), False),
            Targets(supervision.z_targets.astype(np.float64), False),
        )
    raise SupervisionError(f"classes are needed: Labels or MultiLabels, not {type(supervision).__name__}")


def check_features(samples: npt.ArrayLike, name: str, n_features: int | None = None) -> Samples:
    """Return checked samples, sparse ones as they are where they have many features and dense otherwise.

    Parameters
    ----------
    samples : array-like or sparse array of shape (n_samples, n_features)
        Not modified.
    name : str
        How the caller names it; appears in the error.
    n_features : int, optional
        How many features there must be.

    Raises
    ------
    InvalidInputError
        As of `check_samples`, or if the number of features is another.
    """
    array = check_samples(samples, name, sparse=True)
    if n_features is not None and array.shape[1] != n_features:
        raise InvalidInputError(f"{name} has {array.shape[1]} features, the model expects {n_features}")
    return array.toarray() if is_sparse(array) and array.shape[1] <= _FEW_FEATURES else array
