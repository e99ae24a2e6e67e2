"""Beginning a large problem on some of its pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from solver.bilinear.problem import BilinearProblem
from solver.optimisation.preconditioner import GramSpectrum
from solver.optimisation.subsample import PairSubsample, SubsampledLoss


class SubsampledProblem:
    """A problem of which only some blocks of pairs are looked at; in the coordinates of the whole.

    Parameters
    ----------
    whole : BilinearProblem
        All of it.
    subsample : PairSubsample
        Of it.
    n_blocks : int
        How many of the subsample's blocks are looked at.
    penalty_growth : float
        By what its penalty weight exceeds that of the whole: the noise of a gradient falls with the number of
        pairs, and a weaker penalty would have the part learn noise that all pairs then have to undo.
    """

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
        """Shape of the bilinear matrix."""
        return self._whole.shape

    def loss(self, dtype: type) -> SubsampledLoss:
        """Return the smooth term; in float32, whatever is asked for."""
        return self._loss

    @property
    def spectra(self) -> tuple[GramSpectrum, GramSpectrum]:
        """Spectra of all samples."""
        return self._whole.spectra

    @property
    def alpha_max(self) -> float:
        """Penalty weight from which on zero is optimal for the whole."""
        return self._whole.alpha_max

    @property
    def first_step(self) -> float:
        """A step of the right order of size."""
        return self._whole.first_step


def subsampled_problems(problem: BilinearProblem) -> Iterator[SubsampledProblem]:
    """Yield ever larger parts of a problem, short of all of it; none where it has no subsample.

    Parameters
    ----------
    problem : BilinearProblem
        All of it.

    Yields
    ------
    SubsampledProblem
        The first block alone, then all blocks of the subsample.
    """
    subsample = problem.subsample
    if subsample is not None:
        yield SubsampledProblem(problem, subsample, 1, math.sqrt(subsample.n_blocks))
        yield SubsampledProblem(
            problem, subsample, subsample.n_blocks, math.sqrt(math.sqrt(subsample.n_blocks))
        )
