"""Logistic regression of classes or labels, and the linear classifier that it fits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from solver.linalg import Centered, FloatArray, Samples
from solver.supervision.kinds import AnySupervision, Indices, Labels, MultiLabels
from solver.validation import InvalidInputError, SupervisionError

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

_MIN_PROBABILITY = 1e-9
"""Posteriors are clipped to it: a single impossible class must not make a log loss infinite."""
IMPOSSIBLE_SCORE = -1e4
"""The score of a class that no sample has: its exponential is exactly 0, even in float64."""
_TOL = 1e-4  # scikit-learn's default; classifiers of an average need no more
_MAX_ITER = 300
"""Three times scikit-learn's default, for weak penalties; a fit that stops short is still usable."""


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Classes to predict: exactly one for each sample, or any number of labels."""

    indicators: FloatArray  # (n_samples, n_classes), 1 where a sample belongs to a class, else 0
    is_exclusive: bool

    def subset(self, rows: Indices) -> Targets:
        return Targets(self.indicators[rows], self.is_exclusive)

    def log_loss(self, posteriors: FloatArray) -> float:
        """Return the mean negative log-likelihood of the true classes, in nats per sample."""
        likely = np.clip(posteriors, _MIN_PROBABILITY, 1.0 - _MIN_PROBABILITY)
        total = np.sum(self.indicators * np.log(likely))
        if not self.is_exclusive:
            total += np.sum((1.0 - self.indicators) * np.log1p(-likely))
        return -float(total) / len(self.indicators)


def class_targets(supervision: AnySupervision, needed_by: str) -> tuple[Targets, Targets]:
    """Return the classes of either modality's samples; those of both modalities together.
    SupervisionError, which says `needed_by`, if the supervision knows no classes."""
    if isinstance(supervision, MultiLabels):
        x_labels, z_labels = (
            side.astype(np.float64) for side in (supervision.x_targets, supervision.z_targets)
        )
        return Targets(x_labels, False), Targets(z_labels, False)
    if isinstance(supervision, Labels):
        one_hot = np.eye(len(supervision.classes))
        return Targets(one_hot[supervision.x_targets], True), Targets(one_hot[supervision.z_targets], True)
    raise SupervisionError(
        f"{needed_by} learns from classes: it needs labels (an array, Labels or MultiLabels), got "
        f"{type(supervision).__name__}"
    )


@dataclass(frozen=True, slots=True, eq=False)
class LinearClassifier:
    """Posteriors as the softmax of linear scores, or as the logistic sigmoid of each score."""

    coefficients: FloatArray  # (n_mapped, n_classes)
    intercepts: FloatArray  # -1e4 for a class that no sample had, 1e4 for a label that all had
    is_exclusive: bool  # softmax; else sigmoids

    def __post_init__(self) -> None:
        if self.coefficients.ndim != 2 or self.intercepts.shape != self.coefficients.shape[1:]:
            raise InvalidInputError(
                f"coefficients {self.coefficients.shape} do not match intercepts {self.intercepts.shape}"
            )

    @property
    def n_classes(self) -> int:
        return len(self.intercepts)

    def predict(self, mapped: Samples) -> FloatArray:
        """Return posteriors of mapped samples, of shape (n_samples, n_classes), in float64."""
        return self.to_posteriors(mapped.astype(np.float64) @ self.coefficients + self.intercepts)

    def to_posteriors(self, scores: FloatArray) -> FloatArray:
        """Return the posteriors of given scores, both of shape (n_samples, n_classes)."""
        return softmax(scores, axis=1) if self.is_exclusive else expit(scores)


@dataclass(slots=True, eq=False)
class Regression:
    """Logistic regression of classes (one multinomial) or labels; each fit starts from the previous one.
    It stops once no entry of the gradient exceeds `tol`."""

    # A class that no sample has gets posterior 0, a label that all samples have gets 1. scikit-learn's
    # `ConvergenceWarning` passes through: fits run on several threads, where warnings cannot be caught.
    # Float32 is enough where features have similar magnitudes.

    is_exclusive: bool
    dtype: npt.DTypeLike = np.float32
    tol: float = _TOL
    max_iter: int = _MAX_ITER
    _models: dict[int, LogisticRegression] = field(default_factory=dict, init=False)

    def fit(self, mapped: Samples, targets: Targets, inverse_penalty: float) -> LinearClassifier:
        """Fit to mapped samples of shape (n_samples, n_mapped): dense, sparse, or `Centered`."""
        samples, n_classes = mapped.astype(self.dtype), targets.indicators.shape[1]
        shift = None
        if isinstance(samples, Centered):
            # The intercept is not penalised: moving the samples by their mean changes nothing else.
            samples, shift = samples.sparse, mapped.shift.astype(np.float64)
        coefficients = np.zeros((samples.shape[1], n_classes))
        intercepts = np.full(n_classes, IMPOSSIBLE_SCORE)
        if self.is_exclusive:
            classes, codes = np.unique(targets.indicators.argmax(axis=1), return_inverse=True)
            # scikit-learn gives two classes one score, that of the second; the first one's is 0.
            intercepts[classes] = 0.0
            problems = [(0, classes[1:] if len(classes) == 2 else classes, codes)]
        else:
            intercepts[targets.indicators.all(axis=0)] = -IMPOSSIBLE_SCORE
            problems = [(label, np.array([label]), codes) for label, codes in enumerate(targets.indicators.T)]
        for key, columns, codes in problems:
            if len(np.unique(codes)) > 1:
                model = self._fit_model(key, samples, codes, inverse_penalty)
                coefficients[:, columns], intercepts[columns] = model.coef_.T, model.intercept_
                if shift is not None:
                    intercepts[columns] += shift @ coefficients[:, columns]
        return LinearClassifier(coefficients, intercepts, self.is_exclusive)

    def _fit_model(
        self, key: int, samples: Samples, codes: npt.NDArray[Any], inverse_penalty: float
    ) -> LogisticRegression:
        from sklearn.linear_model import LogisticRegression  # posteriors of a trained model do not need it

        model = self._models.setdefault(
            key, LogisticRegression(tol=self.tol, max_iter=self.max_iter, warm_start=True)
        )
        model.set_params(C=inverse_penalty).fit(samples, codes)
        return model
