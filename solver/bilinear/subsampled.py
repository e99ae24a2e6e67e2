"""Warm starts of a large problem on subsamples of its pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from solver.bilinear.problem import BilinearProblem
from solver.optimisation.preconditioner import GramSpectrum
from solver.optimisation.subsample import PairSubsample, SubsampledLoss


class SubsampledProblem:
    """A problem restricted to some blocks of its pairs, in the coordinates of the whole problem."""

    # `penalty_growth` is its penalty weight over that of the whole problem. A gradient over fewer pairs is
    # noisier; without a stronger penalty this problem would learn noise that the fit on all pairs has to
    # undo.

    subsample = None

    def __init__(
        self, whole: BilinearProblem, subsample: PairSubsample, n_blocks: int, penalty_growth: float
    ) -> None:
        self._whole = whole
        self._loss = subsample.loss(n_blocks)
        self.share = subsample.share(n_blocks)
        self.penalty_growth = penalty_growth

    @property
    def shape(self) -> tuple[int, int]:
        return self._whole.shape

    def loss(self, dtype: type) -> SubsampledLoss:
        """Return the smooth term, always in float32."""
        return self._loss

    @property
    def spectra(self) -> tuple[GramSpectrum, GramSpectrum]:
        return self._whole.spectra

    @property
    def alpha_max(self) -> float:
        """Smallest penalty weight at which zero is optimal for the whole problem."""
        return self._whole.alpha_max

    @property
    def first_step(self) -> float:
        return self._whole.first_step


def subsampled_problems(problem: BilinearProblem) -> Iterator[SubsampledProblem]:
    """Yield increasing subsamples of a problem: the first block, then all; none if it has no subsample."""
    subsample = problem.subsample
    if subsample is not None:
        yield SubsampledProblem(problem, subsample, 1, math.sqrt(subsample.n_blocks))
        yield SubsampledProblem(
            problem, subsample, subsample.n_blocks, math.sqrt(math.sqrt(subsample.n_blocks))
        )
