"""Choosing scalings and parameters by cross-validation inside the training split.

The rules are the same for every method. With its default parameters one kind of scaling is chosen for both
modalities. With that scaling the parameters are chosen one after the other; then the scaling of the first
modality alone and that of the second, and the parameters once more. Of equally good candidates the first is
taken. A candidate's score is the MAP of both directions, averaged over the folds; of a method that has
nothing to choose here, because it chooses inside of its fit, on the first alone. A candidate that cannot be
fitted on some fold is the worst.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from solver.comparison.methods import Axis, Method
from solver.comparison.preparation import PreparedSplits, Split
from solver.evaluation.metrics import bidirectional_map
from solver.validation.errors import ConvergenceWarning, InvalidInputError, NumericalError

_WORST = float("-inf")  # score of a candidate that cannot be fitted


@dataclass(frozen=True, slots=True)
class Choice:
    """What tuning chose: kinds of `FeatureScaler`, parameters, and the MAP of both directions,
    cross-validated."""

    x_scaling: str
    z_scaling: str
    parameters: dict[str, Any]
    score: float
    n_candidates: int


def tune(splits: PreparedSplits, method: Method, pca: bool) -> Choice:
    """Choose scalings and parameters of a method, by the folds alone: the test split is never looked at.
    InvalidInputError if it cannot be fitted with any scaling."""
    has_choice = bool(method.grid) or len(method.scalings) > 1
    search = _Search(splits, method, pca, splits.folds if has_choice else splits.folds[:1])
    with warnings.catch_warnings():
        # Candidates may stop early; what is reported is whether the final fit converges.
        for category in (ConvergenceWarning, SklearnConvergenceWarning):
            warnings.simplefilter("ignore", category)
        search.choose_scaling()
        search.choose_parameters()
        search.choose_each_scaling()
        search.choose_parameters()
    return search.choice()


class _Search:
    def __init__(self, splits: PreparedSplits, method: Method, pca: bool, folds: Sequence[Split]) -> None:
        self._splits, self._method, self._pca, self._folds = splits, method, pca, folds
        self._parameters = method.defaults
        self._scalings = "", ""
        self._score = _WORST
        self._scores: dict[str, float] = {}
        self._last_error = ""

    def choice(self) -> Choice:
        return Choice(*self._scalings, self._parameters, self._score, len(self._scores))

    def choose_scaling(self) -> None:
        x_kinds, z_kinds = self._kinds()
        self._choose_pair([(kind, kind) for kind in x_kinds if kind in z_kinds])
        if self._score == _WORST:
            raise InvalidInputError(f"no scaling lets it be fitted; the last failed: {self._last_error}")

    def choose_each_scaling(self) -> None:
        x_kinds, z_kinds = self._kinds()
        self._choose_pair([(kind, self._scalings[1]) for kind in x_kinds])
        self._choose_pair([(self._scalings[0], kind) for kind in z_kinds])

    def choose_parameters(self) -> None:
        for axis in self._method.grid:
            self._choose(axis)

    def _kinds(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        x_kinds, z_kinds = (self._splits.usable_scalings(side, self._method.scalings) for side in ("x", "z"))
        return x_kinds, z_kinds

    def _choose(self, axis: Axis) -> None:
        candidates = [{**self._parameters, axis.name: value} for value in axis.values]
        scores = self._evaluate(self._scalings, candidates)
        best = int(np.argmax(scores))
        self._parameters, self._score = candidates[best], scores[best]

    def _choose_pair(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            score = self._evaluate(pair, [self._parameters])[0]
            if score > self._score:
                self._score, self._scalings = score, pair

    def _evaluate(self, scalings: tuple[str, str], candidates: list[dict[str, Any]]) -> list[float]:
        """Return the score of each candidate; what was scored before is not fitted again."""
        keys = [repr((scalings, sorted(candidate.items()))) for candidate in candidates]
        new = [number for number, key in enumerate(keys) if key not in self._scores]
        if new:
            unscored = [candidates[number] for number in new]
            rows = [self._evaluate_fold(fold, scalings, unscored) for fold in self._folds]
            for number, score in zip(new, np.mean(rows, axis=0).tolist(), strict=True):
                self._scores[keys[number]] = score
        return [self._scores[key] for key in keys]

    def _evaluate_fold(
        self, fold: Split, scalings: tuple[str, str], candidates: list[dict[str, Any]]
    ) -> list[float]:
        # A walk fits all candidates together; otherwise each is fitted alone, so a failure affects only one.
        together = [candidates] if self._method.walk else [[candidate] for candidate in candidates]
        scores: list[float] = []
        for group in together:
            group_scores: list[float] = []
            try:
                group_scores.extend(self._scores_of(fold, scalings, group))
            except (InvalidInputError, NumericalError) as error:
                self._last_error = str(error)
            scores += group_scores + [_WORST] * (len(group) - len(group_scores))
        return scores

    def _scores_of(
        self, fold: Split, scalings: tuple[str, str], candidates: list[dict[str, Any]]
    ) -> Iterator[float]:
        splits, sides = self._splits, tuple(zip("xz", scalings, strict=True))
        (X, x_scored), (Z, z_scored) = (splits.features(fold, *side, self._pca) for side in sides)
        labels = splits.data.labels[fold.scoring]
        bases = None
        if self._method.uses_bases:
            bases = splits.basis(fold, *sides[0], self._pca), splits.basis(fold, *sides[1], self._pca)
        for project in self._method.projections(X, Z, splits.supervision(fold), candidates, bases):
            yield bidirectional_map(*project(x_scored, z_scored), labels, labels).mean
