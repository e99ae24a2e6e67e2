"""The matrix M between the posteriors of both modalities: the identity, unless folds prefer a learned one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solver.bilinear.problem import BilinearProblem
from solver.bilinear.solving import regularisation_path
from solver.evaluation.metrics import bidirectional_map
from solver.linalg.matrices import FloatArray
from solver.logistic import Targets
from solver.semantic.folds import paired_folds
from solver.semantic.search import SearchOptions
from solver.supervision.base import Indices, Supervision
from solver.validation.errors import RankWarning, SupervisionError

ALPHA_FRACTIONS = (0.03, 0.003, 0.0003)
"""Penalty weights to try, as shares of `alpha_max`: a decade apart, the middle one near 1e-3, which once was
the only one."""
_N_FOLDS = 3
"""A weight has to win on each: where it makes no difference, it does so by chance in one of eight cases."""
_TOL, _MAX_ITER = 3e-2, 20
"""Gap and step limit of each solution: enough to rank samples by it, as when methods are compared."""


def choose_alpha_fraction(
    posteriors: tuple[FloatArray, FloatArray],
    targets: tuple[Targets, Targets],
    supervision: Supervision,
    options: SearchOptions,
    heartbeat: Callable[[], None],
) -> float | None:
    """Return the `ALPHA_FRACTIONS` entry with the highest MAP among those that beat the identity on every
    fold. None if none does. The posteriors, (n_samples, n_classes), are out of fold."""
    # For true posteriors the identity is optimal: sum_c p(c|x) p(c|z) is the probability of equal classes. A
    # learned M can mend biased ones, but its penalty weighs every class alike while the loss hardly sees a
    # class with few samples, so a strong penalty drops such classes first.
    x_folds, z_folds = paired_folds(*targets, options.max_samples, _N_FOLDS, options.random_state)
    rng = np.random.default_rng(options.random_state)
    gains: list[list[float]] = []
    for number in range(len(x_folds)):
        split = _Split.of(x_folds, z_folds, number, rng)
        try:
            identity, *learned = split.qualities(posteriors, targets, supervision, options, heartbeat)
        except SupervisionError:
            return None
        gains.append([quality - identity for quality in learned])
    # A fold without a pair of equal classes has no quality: its NaN is no gain.
    prefers = np.all(np.asarray(gains) > 0.0, axis=0)
    if not prefers.any():
        return None
    mean = np.where(prefers, np.mean(gains, axis=0), -np.inf)
    return ALPHA_FRACTIONS[int(np.argmax(mean))]


def warn_of_low_rank(rank: int, loss: str, targets: tuple[Targets, Targets]) -> None:
    """Give a `RankWarning` if a learned M has a lower rank than both modalities have classes in common."""
    # Not of labels that do not exclude each other, since one may follow from others. The softmax loss needs
    # one direction fewer: posteriors sum to one, and it does not see constants.
    x, z = (side.indicators.any(axis=0) for side in targets)
    n_classes = int(np.sum(x & z))
    if targets[0].is_exclusive and rank < n_classes - (loss == "softmax"):
        warnings.warn(
            f"M has rank {rank}, below the number of classes, {n_classes}: classes with few samples may not "
            "be found; with alpha_fraction=None M is the identity where that ranks held-out samples better",
            RankWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """Rows of both modalities to learn M from, and those to judge it on."""

    fitting: tuple[Indices, Indices]
    held_out: tuple[Indices, Indices]

    @classmethod
    def of(
        cls,
        x_folds: Sequence[Indices],
        z_folds: Sequence[Indices],
        number: int,
        rng: np.random.Generator,
    ) -> _Split:
        """Return the split whose held-out rows, in random order, are those of one fold."""
        fitting = tuple(
            np.concatenate([fold for other, fold in enumerate(folds) if other != number])
            for folds in (x_folds, z_folds)
        )
        # Ties are ranked by row number, which must not say anything about the class.
        held_out = tuple(rng.permutation(folds[number]) for folds in (x_folds, z_folds))
        return cls((fitting[0], fitting[1]), (held_out[0], held_out[1]))

    def qualities(
        self,
        posteriors: tuple[FloatArray, FloatArray],
        targets: tuple[Targets, Targets],
        supervision: Supervision,
        options: SearchOptions,
        heartbeat: Callable[[], None],
    ) -> Iterator[float]:
        """Yield the MAP of the held-out rows under the identity, then under M of each penalty weight.
        SupervisionError if the other rows lack similar or dissimilar pairs, or nothing separates them."""
        (P, Q), (x_rows, z_rows) = posteriors, self.held_out
        classes = _classes(targets[0], x_rows), _classes(targets[1], z_rows)
        yield bidirectional_map(P[x_rows], Q[z_rows], *classes).mean
        x_fitting, z_fitting = self.fitting
        problem = BilinearProblem(
            P[x_fitting],
            Q[z_fitting],
            supervision.subset(x_fitting, z_fitting),
            fit_intercept=False,
            n_threads=options.n_jobs,
            loss=options.loss,
        )
        if problem.largest_alpha == 0.0:
            raise SupervisionError("no posterior separates similar pairs from dissimilar ones")
        alphas = [fraction * problem.largest_alpha for fraction in ALPHA_FRACTIONS]
        path = regularisation_path(
            problem, alphas, tol=_TOL, max_iter=_MAX_ITER, callback=lambda _: heartbeat()
        )
        for point in path:
            yield bidirectional_map(*point.project(P[x_rows], Q[z_rows]), *classes).mean


def _classes(targets: Targets, rows: Indices) -> FloatArray:
    """Return the class of each row, or the indicators of several."""
    indicators = targets.indicators[rows]
    return indicators.argmax(axis=1) if targets.is_exclusive else indicators
