"""Semantic matching: both modalities as class posteriors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.special
from sklearn.linear_model import LogisticRegression

from solver.base import Constraint, CrossModalEstimator, check_samples, project_affinely
from solver.baselines._pairs import check_sizes, class_indicators
from solver.linalg import FloatArray, Samples
from solver.multi_labels import MultiLabels
from solver.parameters import COUNT, POSITIVE, POSITIVE_OR_NONE
from solver.problem import AnySupervision

_CERTAIN = 40.0  # the sigmoid of this score is 1 in float64


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorMap:
    """Class posteriors from linear scores.

    Parameters
    ----------
    coefficients : ndarray of shape (n_features, n_scores)
        Linear part of the scores.
    intercept : ndarray of shape (n_scores,)
        Constant part of the scores.
    classes : ndarray of shape (n_scores,)
        Class of each score; the posterior of the others is 0.
    n_classes : int
        Number of posteriors.
    is_exclusive : bool
        Whether posteriors are the softmax of the scores, and sum to one, or a sigmoid of each.
    """

    coefficients: FloatArray
    intercept: FloatArray
    classes: npt.NDArray[np.intp]
    n_classes: int
    is_exclusive: bool

    def posteriors(self, samples: npt.ArrayLike, name: str) -> FloatArray:
        """Return the (n_samples, n_classes) posteriors of samples that the caller names so."""
        scores = project_affinely(samples, self.coefficients, self.intercept, name)
        posteriors = np.zeros((len(scores), self.n_classes))
        posteriors[:, self.classes] = (
            scipy.special.softmax(scores, axis=1) if self.is_exclusive else scipy.special.expit(scores)
        )
        return posteriors


class SemanticMatching(CrossModalEstimator):
    """Class posteriors of either modality, matched by their inner product.

    A multinomial logistic regression in each modality by itself [1]_,

        p(c | x) = exp(w_c^T x + b_c) / sum_k exp(w_k^T x + b_k),
        min_{w, b}  1/2 sum_c |w_c|^2 - C sum_i log p(c_i | x_i),

    and likewise for z. The similarity ``sum_c p(c|x) p(c|z)`` is the probability that both samples are of one
    class, if the posteriors are true and the samples independent.

    Parameters
    ----------
    C : float, > 0
        Inverse strength of the L2 penalty.
    z_C : float, > 0, or None
        That of the second modality; the same as `C` when None. Two modalities seldom need the same.
    tol : float, > 0
        The optimiser stops where no entry of the gradient exceeds it.
    max_iter : int, >= 1
        Iteration limit of the optimiser; reaching it gives scikit-learn's `ConvergenceWarning`.

    Attributes
    ----------
    x_posterior_ : PosteriorMap
        Of the first modality.
    z_posterior_ : PosteriorMap
        Of the second modality.

    Notes
    -----
    Projections are posteriors over the classes of both modalities together; a class that one of them
    never shows has posterior 0 there. Under `MultiLabels` each label has a logistic regression of its
    own, and the posteriors do not sum to one; a label that all samples of a modality carry, or none
    does, has posterior 1 or 0. The classifiers are `sklearn.linear_model.LogisticRegression`. The paper
    compares posteriors by several measures; the inner product is the one that an index can search.

    References
    ----------
    .. [1] N. Rasiwasia, J. Costa Pereira, E. Coviello, G. Doyle, G. R. G. Lanckriet, R. Levy,
       N. Vasconcelos, "A New Approach to Cross-Modal Multimedia Retrieval", ACM Multimedia 2010.

    Examples
    --------
    >>> from solver import Labels, SemanticMatching, make_low_rank_pairs
    >>> data = make_low_rank_pairs(60, 50, n_classes=4, random_state=0)
    >>> model = SemanticMatching(C=10.0).fit(data.X, data.Z, Labels(data.x_labels, data.z_labels))
    >>> model.project_x(data.X).shape
    (60, 4)
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "C": POSITIVE,
        "z_C": POSITIVE_OR_NONE,
        "tol": POSITIVE,
        "max_iter": COUNT,
    }
    _fitted_attribute: ClassVar[str] = "z_posterior_"

    x_posterior_: PosteriorMap
    z_posterior_: PosteriorMap

    def __init__(
        self, C: float = 1.0, *, z_C: float | None = None, tol: float = 1e-4, max_iter: int = 5000
    ) -> None:
        self.C = C
        self.z_C = z_C
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnySupervision) -> Self:
        """Learn the posteriors.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_samples_x, n_features_x)
            First modality. Not modified.
        Z : array-like or sparse array of shape (n_samples_z, n_features_z)
            Second modality. Not modified.
        supervision : Labels or MultiLabels
            The classes.

        Raises
        ------
        InvalidParameterError, InvalidInputError, SupervisionError
            If parameters, arrays or supervision are not as described.
        """
        self._check_parameters()
        x, z = (check_samples(each, name, np.float64, sparse=True) for each, name in ((X, "X"), (Z, "Z")))
        x_indicators, z_indicators = class_indicators(supervision, type(self).__name__)
        check_sizes(x, z, supervision)
        is_exclusive = not isinstance(supervision, MultiLabels)
        z_C = self.C if self.z_C is None else self.z_C
        x_posterior = _learn(x, x_indicators, self._classifier(self.C), is_exclusive)
        z_posterior = _learn(z, z_indicators, self._classifier(z_C), is_exclusive)
        self.x_posterior_, self.z_posterior_ = x_posterior, z_posterior
        return self

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Return the class posteriors of samples of the first modality.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_samples_x, n_features_x)
            Not modified.

        Returns
        -------
        ndarray of shape (n_samples_x, n_classes)
            In float64.
        """
        self._check_fitted()
        return self.x_posterior_.posteriors(X, "X")

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Return the class posteriors of samples of the second modality.

        Parameters
        ----------
        Z : array-like or sparse array of shape (n_samples_z, n_features_z)
            Not modified.

        Returns
        -------
        ndarray of shape (n_samples_z, n_classes)
            In float64.
        """
        self._check_fitted()
        return self.z_posterior_.posteriors(Z, "Z")

    def _classifier(self, C: float) -> LogisticRegression:
        return LogisticRegression(C=C, tol=self.tol, max_iter=self.max_iter)


def _learn(
    samples: Samples, indicators: FloatArray, classifier: LogisticRegression, is_exclusive: bool
) -> PosteriorMap:
    """Fit the classifier to the classes that are shown, anew for each where they are not exclusive."""
    shown = np.flatnonzero(indicators.any(axis=0))
    if is_exclusive:
        classes = shown[np.argmax(indicators[:, shown], axis=1)]
        coefficients, intercept = _scores_of_classes(samples, classes, classifier)
    else:
        columns = [_scores_of_label(samples, indicators[:, label], classifier) for label in shown]
        coefficients, intercept = (np.hstack(part) for part in zip(*columns, strict=True))
    return PosteriorMap(coefficients, intercept, shown, indicators.shape[1], is_exclusive)


def _scores_of_classes(
    samples: Samples, classes: npt.NDArray[np.intp], classifier: LogisticRegression
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients and intercepts of exclusive classes."""
    n_classes = len(np.unique(classes))
    if n_classes == 1:
        return np.zeros((samples.shape[1], 1)), np.zeros(1)
    classifier.fit(samples, classes)
    if n_classes == 2:
        # scikit-learn gives the scores' difference: a softmax over it and 0 is the same.
        difference = classifier.coef_.T
        return np.hstack([np.zeros_like(difference), difference]), np.array([0.0, *classifier.intercept_])
    return classifier.coef_.T, classifier.intercept_


def _scores_of_label(
    samples: Samples, carried: FloatArray, classifier: LogisticRegression
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients and intercept of one label against its absence."""
    if carried.all():
        return np.zeros((samples.shape[1], 1)), np.array([_CERTAIN])
    classifier.fit(samples, carried)
    return classifier.coef_.T, classifier.intercept_
