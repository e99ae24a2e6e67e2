"""From similarities to the probability of a match."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.linalg.matrices import FloatArray
from solver.supervision.annotations import BoolArray

_MOST_PAIRS = 2_000_000  # similarities that a curve is fitted to: more do not change it
_LEVELS = 64  # points of the curve at most


def fit_match_curve(
    similarities: Sequence[FloatArray], is_match: Sequence[BoolArray], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return levels of similarity, ascending, and the probability of a match at each, by held-out pairs."""
    # The probability never decreases with the similarity (isotonic regression: Zadrozny and Elkan,
    # "Transforming Classifier Scores into Accurate Multiclass Probability Estimates", KDD 2002). The levels
    # are quantiles of all pairs and, since matches are rare, of the matches. Few pairs prove neither 0 nor
    # 1, so the targets are those of J. Platt, "Probabilistic Outputs for Support Vector Machines", 1999.
    from sklearn.isotonic import IsotonicRegression

    scores = np.concatenate([block.ravel() for block in similarities]).astype(np.float64)
    matches = np.concatenate([block.ravel() for block in is_match])
    if len(scores) > _MOST_PAIRS:
        chosen = rng.choice(len(scores), _MOST_PAIRS, replace=False)
        scores, matches = scores[chosen], matches[chosen]
    n_matches = np.count_nonzero(matches)
    targets = np.where(matches, (n_matches + 1) / (n_matches + 2), 1 / (len(matches) - n_matches + 2))
    curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores, targets)
    shares = np.linspace(0.0, 1.0, _LEVELS // 2)
    groups = [scores, scores[matches]] if matches.any() else [scores]
    levels = np.unique(np.concatenate([np.quantile(group, shares) for group in groups]))
    return levels, np.maximum.accumulate(np.clip(curve.predict(levels), 0.0, 1.0))
