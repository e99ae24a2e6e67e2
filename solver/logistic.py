"""Logistic regression of classes or labels, and what it leaves: linear scores with their posteriors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from solver.errors import InvalidInputError
from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples
from solver.supervision.base import Indices

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

_LEAST = 1e-9
_NEVER = -1e4
"""A score whose exponential is zero."""
_TOLERANCE, _MOST_ITERATIONS = 1e-4, 300


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What is predicted: one class for each sample, or any number of labels.

    Parameters
    ----------
    indicators : ndarray of shape (n_samples, n_classes)
        1 where a sample is of a class.
    is_exclusive : bool
        Whether every sample has exactly one class.
    """

    indicators: FloatArray
    is_exclusive: bool

    def rows(self, rows: Indices) -> Targets:
        """Return the targets of some samples."""
        return Targets(self.indicators[rows], self.is_exclusive)

    def log_loss(self, posteriors: FloatArray) -> float:
        """Return the mean negative log-likelihood of the truth, in nats per sample."""
        likely = np.clip(posteriors, _LEAST, 1.0 - _LEAST)
        total = np.sum(self.indicators * np.log(likely))
        if not self.is_exclusive:
            total += np.sum((1.0 - self.indicators) * np.log1p(-likely))
        return -float(total) / len(self.indicators)


@dataclass(frozen=True, slots=True, eq=False)
class LinearClassifier:
    """Scores that are linear in mapped samples, and their softmax, or the logistic sigmoid of each.

    Parameters
    ----------
    coefficients : ndarray of shape (n_mapped, n_classes)
        Linear part of the scores.
    intercepts : ndarray of shape (n_classes,)
        Constant part; very low for a class that was not seen, very high for a label that all carried.
    is_exclusive : bool
        Softmax if true.
    """

    coefficients: FloatArray
    intercepts: FloatArray
    is_exclusive: bool

    def __post_init__(self) -> None:
        """Refuse parts that do not fit each other."""
        if self.coefficients.ndim != 2 or self.intercepts.shape != self.coefficients.shape[1:]:
            raise InvalidInputError(
                f"coefficients {self.coefficients.shape} and intercepts {self.intercepts.shape} do not fit"
            )

    @property
    def n_classes(self) -> int:
        """Number of classes or labels."""
        return len(self.intercepts)

    def predict(self, mapped: Samples) -> FloatArray:
        """Return posteriors of mapped samples, of shape (n_samples, n_classes), in float64."""
        return self.of_scores(mapped.astype(np.float64) @ self.coefficients + self.intercepts)

    def of_scores(self, scores: FloatArray) -> FloatArray:
        """Return the posteriors of scores, both of shape (n_samples, n_classes)."""
        posteriors: FloatArray = softmax(scores, axis=1) if self.is_exclusive else expit(scores)
        return posteriors


class Regression:
    """Logistic regression of classes or of labels; each fit begins at the one before.

    Parameters
    ----------
    is_exclusive : bool
        Multinomial if true, else one for each label.
    dtype : dtype
        In which samples are fitted; float32 is enough where their features are of like size.
    tol : float
        The optimiser stops where no entry of the gradient exceeds it.
    max_iter : int
        Iteration limit of the optimiser.

    Notes
    -----
    A class that no sample shows has posterior 0, a label that all samples carry 1. Where scikit-learn warns
    that it has not converged, so does this; it may run on several threads at once, where warnings cannot
    be caught.
    """

    def __init__(
        self,
        is_exclusive: bool,
        dtype: npt.DTypeLike = np.float32,
        tol: float = _TOLERANCE,
        max_iter: int = _MOST_ITERATIONS,
    ) -> None:
        self._is_exclusive = is_exclusive
        self._dtype = dtype
        self._tol = tol
        self._max_iter = max_iter
        self._models: dict[int, LogisticRegression] = {}

    def fit(self, mapped: Samples, targets: Targets, inverse_penalty: float) -> LinearClassifier:
        """Fit to mapped samples of shape (n_samples, n_mapped): dense, sparse, or `Centered`."""
        samples, n_classes = mapped.astype(self._dtype), targets.indicators.shape[1]
        shift = None
        if isinstance(samples, Centered):
            # Nothing is penalised in an intercept: that of the centred samples follows from the other's.
            samples, shift = samples.sparse, mapped.shift.astype(np.float64)
        coefficients, intercepts = np.zeros((samples.shape[1], n_classes)), np.full(n_classes, _NEVER)
        if self._is_exclusive:
            classes, codes = np.unique(targets.indicators.argmax(axis=1), return_inverse=True)
            # Of two classes the first has the score 0, with which the other's is compared.
            intercepts[classes] = 0.0
            parts = [(0, classes[1:] if len(classes) == 2 else classes, codes)]
        else:
            intercepts[targets.indicators.all(axis=0)] = -_NEVER
            parts = [(label, np.array([label]), codes) for label, codes in enumerate(targets.indicators.T)]
        for key, columns, codes in parts:
            if len(np.unique(codes)) > 1:
                model = self._fitted(key, samples, codes, inverse_penalty)
                coefficients[:, columns], intercepts[columns] = model.coef_.T, model.intercept_
                if shift is not None:
                    intercepts[columns] += shift @ coefficients[:, columns]
        return LinearClassifier(coefficients, intercepts, self._is_exclusive)

    def _fitted(
        self, key: int, samples: Samples, codes: npt.NDArray[Any], inverse_penalty: float
    ) -> LogisticRegression:
        from sklearn.linear_model import LogisticRegression  # posteriors of a trained model do not need it

        model = self._models.setdefault(
            key, LogisticRegression(tol=self._tol, max_iter=self._max_iter, warm_start=True)
        )
        model.set_params(C=inverse_penalty).fit(samples, codes)
        return model
