"""A bilinear similarity of class posteriors."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import ClassVar, Self

import numpy.typing as npt
from typing_extensions import override

from solver.base import CrossModalEstimator
from solver.bilinear.estimator import LowRankBilinear
from solver.linalg.matrices import FloatArray, is_sparse
from solver.linalg.row_space import most_compact
from solver.logistic import class_targets
from solver.losses.base import LOSSES
from solver.progress import Progress, StepProgress
from solver.scaling.scaler import SCALINGS
from solver.semantic.feature_maps import KERNELS, check_features
from solver.semantic.fusion import FusionOptions, Side, fuse
from solver.semantic.neighbours import MAX_INVERSE_TEMPERATURE
from solver.semantic.posteriors import Posteriors
from solver.semantic.search import SEARCHED_SCALINGS, SearchOptions, fit_posteriors
from solver.supervision.base import Supervision
from solver.supervision.sizes import check_sizes
from solver.validation.parameters import (
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


class SemanticBilinear(CrossModalEstimator):
    """Bilinear similarity ``p(x)^T M q(z)`` of class posteriors, with a nuclear-norm penalty on M.

    That two samples belong to one class is no bilinear function of their features, but its probability is
    one of their class posteriors: ``P(same | x, z) = sum_c p(c|x) p(c|z)``. So each modality learns
    posteriors first: an average of logistic regressions on kernel feature maps, chosen by out-of-fold
    likelihood (`solver.semantic.search`). M is then fitted as in `LowRankBilinear`, on out-of-fold
    posteriors, so that it sees how far they can be trusted.

    A share of each posterior comes from a classifier that has learned from both modalities: a second
    bilinear similarity, with the softmax loss on the feature maps themselves, compares a sample with the
    labelled samples of the other modality, and the most similar ones vote on its class
    (`solver.semantic.fusion`; that similarity is stopped early and has no certificate).

    Parameters
    ----------
    loss : {"squared", "logistic", "softmax"}
        Loss of the similarity, see `LowRankBilinear`. With "squared" M is the identity where the posteriors
        are calibrated.
    alpha_fraction : float in (0, 1)
        Penalty weight as a share of `alpha_max`.
    scalings : tuple of str
        Kinds of `FeatureScaler` to try.
    kernels : tuple of {"linear", "rbf", "laplacian"}
        Kernels of `FeatureMap` to try; "laplacian" only with at most 256 features.
    n_landmarks : int, >= 1
        Landmarks of the kernel maps.
    n_folds : int, >= 2
        Number of folds; fewer are used where classes have fewer samples.
    n_kept : int, >= 1
        Feature maps that pass the screening: logistic regressions are fitted on these only.
    n_rounds : int, >= 1
        Classifiers in the average, counted with repetition.
    max_samples : int, >= 10
        Samples of a modality that classifiers are chosen on, and that vote as anchors; the chosen
        classifiers are fitted on all. Of sparse samples with many features at most as many are taken as
        can be made dense within 1 GiB in float64, at least 11 585.
    neighbour_share : float in [0, 1)
        Share of the posteriors that comes from votes of the other modality's samples; 0 for none.
    inverse_temperature : float in (0, 1e4]
        Inverse temperature of the softmax over similarities that weights these votes.
    tol : float, > 0
        Relative duality gap of M.
    random_state : int, >= 0
        Seed of folds and landmarks.
    n_jobs : int or None
        Maximum number of classifiers fitted in parallel; the number of cores when None, and one on sparse
        samples that are too large to be made dense. The result does not depend on it.

    Attributes
    ----------
    x_posteriors_, z_posteriors_ : Posteriors
        Fitted class posteriors of both modalities.
    bilinear_ : LowRankBilinear
        M, with its certificate.
    singular_values_ : ndarray of shape (rank,)
        Singular values of M, in descending order.
    rank_ : int
        Dimension of the common space.

    Notes
    -----
    It learns from equal classes: `Labels`, or `MultiLabels` with a posterior for each label.

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
        "neighbour_share": number_within(0.0, 1.0, closed="left"),
        "inverse_temperature": number_within(0.0, MAX_INVERSE_TEMPERATURE, closed="right"),
        "tol": POSITIVE,
        "random_state": SEED,
        "n_jobs": optional(COUNT),
    }

    def __init__(
        self,
        *,
        loss: str = "squared",
        alpha_fraction: float = 1e-3,
        scalings: tuple[str, ...] = SEARCHED_SCALINGS,
        kernels: tuple[str, ...] = KERNELS,
        n_landmarks: int = 400,
        n_folds: int = 5,
        n_kept: int = 6,
        n_rounds: int = 8,
        max_samples: int = 3000,
        neighbour_share: float = 0.1,
        inverse_temperature: float = 2.0,
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
        self.neighbour_share = neighbour_share
        self.inverse_temperature = inverse_temperature
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
        reuse: SemanticBilinear | None = None,
    ) -> Self:
        """Learn the posteriors, then M.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_samples_x, n_features_x)
            First modality; stays sparse where it has more than 256 features.
        Z : array-like or sparse array of shape (n_samples_z, n_features_z)
            Second modality; stays sparse where it has more than 256 features.
        supervision : Labels or MultiLabels
            Classes of both.
        callback : callable, optional
            Called with a `StepProgress` at each step of the search for posteriors, and with an
            `IterationProgress` after each iteration on M; an exception it raises ends the fit.
        reuse : SemanticBilinear or None
            Fitted on similar samples: its choice of classifiers is fitted to these ones. A modality is
            searched all the same if samples or parameters rule out one of its classifiers.

        Raises
        ------
        InvalidParameterError, InvalidInputError
            If parameters or arrays are invalid, or no feature map of the search suits the samples.
        SupervisionError
            If the supervision has no classes or another number of samples, or if most samples are the only
            one of their class.
        """
        self._check_parameters()
        steps = itertools.count(1)

        def heartbeat() -> None:
            if callback is not None:
                callback(StepProgress(next(steps)))

        x_samples, z_samples = check_features(X, "X"), check_features(Z, "Z")
        x_targets, z_targets = class_targets(supervision, type(self).__name__)
        check_sizes(x_samples, z_samples, supervision)
        if reuse is not None:
            reuse._check_fitted()
        x_configs = () if reuse is None else reuse.x_posteriors_.configs
        z_configs = () if reuse is None else reuse.z_posteriors_.configs
        # One limit for both modalities: of paired samples the same rows are drawn.
        limits = (most_compact(side.shape[1]) for side in (x_samples, z_samples) if is_sparse(side))
        max_samples = min([self.max_samples, *limits])
        search = self._search_options(max_samples)
        x = Side(x_samples, x_targets, fit_posteriors(x_samples, x_targets, search, heartbeat, x_configs))
        z = Side(z_samples, z_targets, fit_posteriors(z_samples, z_targets, search, heartbeat, z_configs))
        options = FusionOptions(
            float(self.neighbour_share),
            float(self.inverse_temperature),
            max_samples,
            self.random_state,
            self._n_jobs(),
        )
        x_posteriors, z_posteriors = fuse(x, z, supervision, options, heartbeat)
        predicted = x_posteriors.out_of_fold, z_posteriors.out_of_fold
        bilinear = LowRankBilinear(
            alpha_fraction=self.alpha_fraction,
            loss=self.loss,
            tol=self.tol,
            fit_intercept=False,
            n_threads=self.n_jobs,
        )
        self.bilinear_ = bilinear.fit(*predicted, supervision, callback=callback)
        self.x_posteriors_, self.z_posteriors_ = x_posteriors, z_posteriors
        self.n_features_x_, self.n_features_z_ = x_samples.shape[1], z_samples.shape[1]
        return self

    @property
    def singular_values_(self) -> FloatArray:
        """Singular values of M, in descending order."""
        self._check_fitted()
        return self.bilinear_.singular_values_

    @property
    def rank_(self) -> int:
        """Rank of M."""
        self._check_fitted()
        return self.bilinear_.rank_

    @override
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        self._check_fitted()
        return self.bilinear_.project_x(self._predict_x(X))

    @override
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        self._check_fitted()
        return self.bilinear_.project_z(self._predict_z(Z))

    def _predict_x(self, X: npt.ArrayLike) -> FloatArray:
        return self.x_posteriors_.predict(check_features(X, "X", self.n_features_x_))

    def _predict_z(self, Z: npt.ArrayLike) -> FloatArray:
        return self.z_posteriors_.predict(check_features(Z, "Z", self.n_features_z_))

    def _search_options(self, max_samples: int) -> SearchOptions:
        return SearchOptions(
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

    def _n_jobs(self) -> int:
        return self.n_jobs or os.cpu_count() or 1
