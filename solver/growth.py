"""Beginning a large problem on some of its pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from solver.curvature import Spectrum
from solver.problem import BilinearProblem
from solver.sketch import Sketch, SketchedLoss


class PartialProblem:
    """A problem of which only some blocks of pairs are looked at; in the coordinates of the whole.

    Parameters
    ----------
    whole : BilinearProblem
        All of it.
    sketch : Sketch
        Of it.
    n_blocks : int
        How many of the sketch's blocks are looked at.
    penalty_growth : float
        By what its penalty weight exceeds that of the whole: the noise of a gradient falls with the number of
        pairs, and a weaker penalty would have the part learn noise that all pairs then have to undo.
    """

    sketch = None

    def __init__(self, whole: BilinearProblem, sketch: Sketch, n_blocks: int, penalty_growth: float) -> None:
        self._whole = whole
        self._loss = sketch.loss(n_blocks)
        self.share = sketch.share(n_blocks)
        self.penalty_growth = penalty_growth

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""
        return self._whole.shape

    def loss(self, dtype: type) -> SketchedLoss:
        """Return the smooth term; in float32, whatever is asked for."""
        return self._loss

    @property
    def spectra(self) -> tuple[Spectrum, Spectrum]:
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


def growing_parts(problem: BilinearProblem) -> Iterator[PartialProblem]:
    """Yield ever larger parts of a problem, short of all of it; none where it has no sketch.

    Parameters
    ----------
    problem : BilinearProblem
        All of it.

    Yields
    ------
    PartialProblem
        The first block alone, then all blocks of the sketch.
    """
    sketch = problem.sketch
    if sketch is not None:
        yield PartialProblem(problem, sketch, 1, math.sqrt(sketch.n_blocks))
        yield PartialProblem(problem, sketch, sketch.n_blocks, math.sqrt(math.sqrt(sketch.n_blocks)))
