"""Choosing scalings and parameters by cross-validation inside the training split.

The rules are the same for every method. With its default parameters the scaling is chosen: first the same
kind for both modalities, then the first modality's alone, then the second's. With that scaling the
parameters are chosen one after the other. Of equally good candidates the first is taken. A candidate's
score is the MAP of both directions, averaged over the folds.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from solver.comparison.methods import RAW_SCALINGS, Axis, Method
from solver.comparison.preparation import Parts
from solver.errors import ConvergenceWarning
from solver.linalg import FloatArray
from solver.metrics import mean_average_precision


@dataclass(frozen=True, slots=True)
class Choice:
    """What tuning chose.

    Parameters
    ----------
    x_scaling, z_scaling : str
        Kinds of `FeatureScaler`.
    parameters : dict
        Tuned parameters.
    score : float
        Cross-validated MAP, averaged over both directions.
    n_candidates : int
        How many were scored.
    """

    x_scaling: str
    z_scaling: str
    parameters: dict[str, Any]
    score: float
    n_candidates: int


def tune(parts: Parts, method: Method, pca: bool) -> Choice:
    """Choose scalings and parameters of a method.

    Parameters
    ----------
    parts : Parts
        Only its folds are looked at, never its test split.
    method : Method
        What is tuned.
    pca : bool
        Whether PCA follows the scaling.
    """
    search = _Search(parts, method, pca)
    with warnings.catch_warnings():
        # Candidates are fitted loosely; whether the chosen one converges is told of the final fit.
        for category in (ConvergenceWarning, SklearnConvergenceWarning):
            warnings.simplefilter("ignore", category)
        search.choose_scalings()
        for axis in method.grid:
            search.choose(axis)
    return search.choice()


class _Search:
    def __init__(self, parts: Parts, method: Method, pca: bool) -> None:
        self._parts, self._method, self._pca = parts, method, pca
        self._parameters = method.defaults
        self._scores: dict[tuple[str, str], float] = {}
        self._scalings = "", ""
        self._score = float("-inf")
        self._n_candidates = 0

    def choice(self) -> Choice:
        return Choice(*self._scalings, self._parameters, self._score, self._n_candidates)

    def choose_scalings(self) -> None:
        x_kinds, z_kinds = (self._parts.allowed(modality, RAW_SCALINGS) for modality in ("x", "z"))
        self._choose_pair([(kind, kind) for kind in x_kinds if kind in z_kinds])
        self._choose_pair([(kind, self._scalings[1]) for kind in x_kinds])
        self._choose_pair([(self._scalings[0], kind) for kind in z_kinds])

    def choose(self, axis: Axis) -> None:
        scores = self._evaluate(self._scalings, axis)
        best = int(np.argmax(scores))
        self._parameters = {**self._parameters, axis.name: axis.values[best]}
        self._score = float(scores[best])

    def _choose_pair(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            if pair not in self._scores:
                self._scores[pair] = float(self._evaluate(pair, None)[0])
            if self._scores[pair] > self._score:
                self._score, self._scalings = self._scores[pair], pair

    def _evaluate(self, scalings: tuple[str, str], axis: Axis | None) -> FloatArray:
        """Return the score of each value of an axis, or of the parameters as they are."""
        rows = [self._evaluate_fold(number, scalings, axis) for number in range(len(self._parts.folds))]
        self._n_candidates += len(rows[0])
        means: FloatArray = np.mean(rows, axis=0)
        return means

    def _evaluate_fold(self, number: int, scalings: tuple[str, str], axis: Axis | None) -> list[float]:
        fold = self._parts.folds[number]
        X, x_held = self._parts.features(fold, "x", scalings[0], self._pca)
        Z, z_held = self._parts.features(fold, "z", scalings[1], self._pca)
        labels = self._parts.data.labels[fold.judging]
        supervision = self._parts.supervision(fold)
        scores = []
        for project in self._method.projections(X, Z, supervision, self._parameters, axis):
            x, z = project(x_held, z_held)
            forth, back = (
                mean_average_precision(x, z, labels, labels),
                mean_average_precision(z, x, labels, labels),
            )
            scores.append((forth + back) / 2.0)
        return scores
