"""A bilinear similarity of class posteriors."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from solver.base import CrossModalEstimator
from solver.bilinear.estimator import LowRankBilinear
from solver.linalg import FloatArray, Sides, is_sparse, most_compact
from solver.logistic import Targets, class_targets
from solver.progress import Heartbeat, OnProgress, WorkPlan, number_steps
from solver.scaling.feature_maps import check_features
from solver.semantic.learners import Posteriors
from solver.semantic.search import (
    SearchOptions,
    Side,
    blend_kernel_ridge,
    choose_alpha_fraction,
    count_steps,
    fit_posteriors,
    fuse,
    warn_of_low_rank,
)
from solver.supervision.annotations import AnyLabels, check_sizes
from solver.supervision.kinds import Labels, Supervision

_STAGE_COSTS = {"x": 0.43, "z": 0.43, "fusion": 0.07, "kernel ridge": 0.05, "M": 0.02}
"""Shares of the time of a fit that searches, about as measured on some hundred samples."""
_FEW_STEPS = 20  # steps of each of the last stages, about: they are short


class SemanticBilinear(SearchOptions, CrossModalEstimator):
    """Bilinear similarity ``p(x)^T M q(z)`` of class posteriors, with a nuclear-norm penalty on M.

    That two samples belong to one class is no bilinear function of their features, but its probability is
    one of their class posteriors: ``P(same | x, z) = sum_c p(c|x) p(c|z)``. So each modality learns
    posteriors first: an average of classifiers on kernel feature maps, chosen by out-of-fold likelihood
    (`solver.semantic.search`), with a share of kernel ridge regression on all samples where that helps
    (`solver.semantic.search`). M is the identity, which is optimal for true posteriors, unless one
    fitted as in `LowRankBilinear` ranks held-out samples better (`solver.semantic.search`); both are
    judged on out-of-fold posteriors, which show how far they can be trusted.

    A share of each posterior comes from a classifier that has learned from both modalities: a second
    bilinear similarity, with the softmax loss on the feature maps themselves, compares a sample with the
    labelled samples of the other modality, and the most similar ones vote on its class
    (`solver.semantic.search`; that similarity is stopped early and has no certificate).

    Parameters
    ----------
    loss : {"squared", "logistic", "softmax"}
        Loss of a learned M, see `LowRankBilinear`. With "squared" M is the identity where the posteriors
        are calibrated.
    alpha_fraction : float in (0, 1) or None
        Penalty weight of a learned M as a share of `alpha_max`. When None, M is learned only where held-out
        samples prefer that to the identity, with a weight that is chosen by them.
    scalings : tuple of str
        Kinds of `FeatureScaler` to try.
    kernels : tuple of {"linear", "rbf", "laplacian"}
        Kernels of `FeatureMap` to try; "laplacian" only with at most 256 features.
    n_landmarks : int, >= 1
        Landmarks of the kernel maps.
    n_folds : int, >= 2
        Number of folds; fewer are used where classes have fewer samples.
    n_kept : int, >= 1
        Feature maps that pass the screening: classifiers are fitted on these only.
    n_rounds : int, >= 1
        Classifiers in the average, counted with repetition.
    max_samples : int, >= 10
        Samples of a modality that classifiers are chosen on, that vote as anchors, and that kernel ridge
        regression learns from; the other classifiers are fitted on all. Of sparse samples with many features
        at most as many are taken as can be made dense within 1 GiB in float64, at least 11 585.
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
    classes_ : tuple of str
        Names of the classes, in the order of the posteriors; none of multi-labels, which have no names.
    bilinear_ : LowRankBilinear or None
        A learned M, with its certificate; None where M is the identity.
    singular_values_ : ndarray of shape (rank,)
        Singular values of M, in descending order.
    rank_ : int
        Dimension of the common space.

    Notes
    -----
    It learns from equal classes: `Labels`, or `MultiLabels` with a posterior for each label. A learned M
    whose rank is below the number of classes, under `Labels`, gives a `RankWarning`.

    Examples
    --------
    >>> from solver import Labels, SemanticBilinear, make_low_rank_pairs
    >>> data = make_low_rank_pairs(n_samples_x=60, n_samples_z=50, random_state=0)
    >>> supervision = Labels(data.x_labels, data.z_labels)
    >>> model = SemanticBilinear(kernels=("linear",)).fit(data.X, data.Z, supervision)
    >>> model.similarity(data.X, data.Z).shape
    (60, 50)
    """

    _fitted_attribute = "bilinear_"

    def fit(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: AnyLabels = None,
        *,
        callback: OnProgress | None = None,
        reuse: SemanticBilinear | None = None,
    ) -> Self:
        """Learn the posteriors, then M.

        Parameters
        ----------
        X, Z, supervision
            As of `CrossModalEstimator.fit`, with its errors. A modality stays sparse where it has more than
            256 features; the supervision is of classes.
        callback : callable, optional
            Called with a `StepProgress` at each step of the search for posteriors and of the choice of M,
            with the share of the work that is done, and with an `IterationProgress` after each iteration on a
            learned M; an exception it raises ends the fit.
        reuse : SemanticBilinear or None
            Fitted on similar samples: its choice of classifiers is fitted to these ones. A modality is
            searched all the same if samples or parameters rule out one of its classifiers.

        Raises
        ------
        InvalidInputError
            If no feature map of the search suits the samples.
        SupervisionError
            If most samples are the only one of their class.
        """
        x_samples, z_samples, checked = self._check_inputs(X, Z, supervision)
        x_samples, z_samples = check_features(x_samples, "X"), check_features(z_samples, "Z")
        work = WorkPlan(number_steps(callback))
        x_targets, z_targets = class_targets(checked, type(self).__name__)
        check_sizes(x_samples, z_samples, checked)
        if reuse is not None:
            reuse._check_fitted()
        x_configs = () if reuse is None else reuse.x_posteriors_.configs
        z_configs = () if reuse is None else reuse.z_posteriors_.configs
        # One limit for both modalities: of paired samples the same rows are drawn.
        limits = (most_compact(side.shape[1]) for side in (x_samples, z_samples) if is_sparse(side))
        own = {**self.get_params(deep=False), "max_samples": min([self.max_samples, *limits])}
        options = SearchOptions(**own)
        work.plan(_STAGE_COSTS)
        work.begin("x", count_steps(options, x_configs))
        x = Side(x_samples, x_targets, fit_posteriors(x_samples, x_targets, options, work, x_configs))
        work.begin("z", count_steps(options, z_configs))
        z = Side(z_samples, z_targets, fit_posteriors(z_samples, z_targets, options, work, z_configs))
        work.begin("fusion", _FEW_STEPS)
        fused = fuse(x, z, checked, options, work)
        work.begin("kernel ridge", _FEW_STEPS)
        x_posteriors, z_posteriors = (
            blend_kernel_ridge(replace(side, posteriors=posteriors), options, work)
            for side, posteriors in zip((x, z), fused, strict=True)
        )
        predicted, targets = (x_posteriors.out_of_fold, z_posteriors.out_of_fold), (x_targets, z_targets)
        work.begin("M", _FEW_STEPS)
        fraction = self._choose_alpha_fraction(predicted, targets, checked, options, work)
        self.bilinear_: LowRankBilinear | None = None
        if fraction is not None:
            self.bilinear_ = LowRankBilinear(
                alpha_fraction=fraction,
                loss=self.loss,
                tol=self.tol,
                fit_intercept=False,
                n_threads=self.n_jobs,
            ).fit(*predicted, checked, callback=callback)
            warn_of_low_rank(self.bilinear_.rank_, self.loss, targets)
        self.x_posteriors_: Posteriors = x_posteriors
        self.z_posteriors_: Posteriors = z_posteriors
        self.classes_ = tuple(map(str, checked.classes)) if isinstance(checked, Labels) else ()
        self.n_features_x_, self.n_features_z_ = int(x_samples.shape[1]), int(z_samples.shape[1])
        return self

    @property
    def singular_values_(self) -> FloatArray:
        """Singular values of M, in descending order."""
        self._check_fitted()
        n_classes = self.x_posteriors_.out_of_fold.shape[1]
        return np.ones(n_classes) if self.bilinear_ is None else self.bilinear_.singular_values_

    @property
    def M_(self) -> FloatArray:  # noqa: N802 - the letter of the paper
        """M between the posteriors of both modalities, of shape (n_classes, n_classes)."""
        self._check_fitted()
        n_classes = self.x_posteriors_.out_of_fold.shape[1]
        return np.eye(n_classes) if self.bilinear_ is None else self.bilinear_.M_

    @property
    def rank_(self) -> int:
        """Rank of M."""
        return len(self.singular_values_)

    @property
    @override
    def n_features_in_(self) -> int:
        self._check_fitted()
        return self.n_features_x_

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        posteriors, n_features = self.x_posteriors_, self.n_features_x_
        if side == "z":
            posteriors, n_features = self.z_posteriors_, self.n_features_z_
        predicted = posteriors.predict(check_features(samples, side.upper(), n_features))
        return predicted if self.bilinear_ is None else self.bilinear_._project(predicted, side)

    def _choose_alpha_fraction(
        self,
        predicted: Sides,
        targets: tuple[Targets, Targets],
        supervision: Supervision,
        options: SearchOptions,
        heartbeat: Heartbeat,
    ) -> float | None:
        if self.alpha_fraction is not None:
            return float(self.alpha_fraction)
        return choose_alpha_fraction(predicted, targets, supervision, options, heartbeat)
