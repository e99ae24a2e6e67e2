"""Generalized multiview analysis: the eigenproblem that GMLDA and GMMFA share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg
from typing_extensions import override

from solver.baselines._bases import CentredBasis
from solver.baselines._basis_fit import BasisBaseline
from solver.baselines._linear import METRIC
from solver.baselines._pairs import class_indicators
from solver.linalg.matrices import FloatArray
from solver.supervision.signed_pairs import AnySupervision
from solver.validation.errors import InvalidInputError
from solver.validation.parameters import COUNT, NOT_NEGATIVE, POSITIVE, Rule, optional


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One modality's part of the problem, in the coordinates of its centred basis."""

    spread: FloatArray  # A, (rank, rank), to be maximised: scatter between classes, or penalty graph
    compactness: FloatArray  # B, (rank, rank), to be minimised: scatter within, or intrinsic graph
    anchors: FloatArray  # (n_classes, rank), row c of one modality goes with row c of the other


class MultiviewBaseline(BasisBaseline):
    """Base of the methods that solve the eigenproblem of generalized multiview analysis."""

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "coupling": NOT_NEGATIVE,
        "mu": POSITIVE,
        "gamma": POSITIVE,
        "reg": NOT_NEGATIVE,
        "eigenvalue_power": NOT_NEGATIVE,
        "metric": METRIC,
    }
    _needs_classes: ClassVar[bool] = True

    n_components: int | None
    coupling: float
    mu: float
    gamma: float
    reg: float
    eigenvalue_power: float
    eigenvalues_: FloatArray  # (rank,), of the chosen directions, in descending order

    @override
    def _learn_directions(
        self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision
    ) -> tuple[FloatArray, FloatArray]:
        indicators = class_indicators(supervision, type(self).__name__)
        x_view, z_view = (
            self._view(basis.coordinates, side) for basis, side in zip((x, z), indicators, strict=True)
        )
        self.eigenvalues_, left, right = self._solve(x_view, z_view)
        # Those below zero are directions in which the modalities contradict each other.
        weights = np.maximum(self.eigenvalues_, 0.0) ** self.eigenvalue_power
        return left * weights, right * weights

    @abstractmethod
    def _view(self, coordinates: FloatArray, indicators: FloatArray) -> View:
        """Describe one modality by its centred coordinates and the classes of its samples."""

    def _solve(self, x: View, z: View) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the leading eigenvalues with the directions of either modality."""
        x, z = _normalise(x), _normalise(z)
        x_whitening = whitening(x.compactness, self.reg)
        z_whitening = whitening(z.compactness, self.reg) / np.sqrt(self.gamma)
        block = self.coupling * x_whitening.T @ (x.anchors.T @ z.anchors) @ z_whitening
        pencil = np.block(
            [
                [x_whitening.T @ x.spread @ x_whitening, block],
                [block.T, self.mu * z_whitening.T @ z.spread @ z_whitening],
            ]
        )
        size = len(pencil)
        count = min(self.n_components or len(x.anchors) - 1, size)
        values, vectors = scipy.linalg.eigh(pencil, subset_by_index=[size - count, size - 1])
        left, right = np.split(vectors[:, ::-1], [x_whitening.shape[1]])
        return values[::-1], x_whitening @ left, z_whitening @ right


def whitening(matrix: FloatArray, reg: float) -> FloatArray:
    """Return W, with orthogonal columns, such that ``W^T (matrix + ridge) W = I``.
    The ridge is the share `reg` of the mean eigenvalue; with 0, directions without any are left out."""
    values, vectors = scipy.linalg.eigh(matrix)
    rounding = len(matrix) * np.finfo(np.float64).eps * float(values[-1])
    values = np.maximum(values, 0.0) + reg * float(np.mean(values))
    is_positive = values > rounding
    scaled: FloatArray = vectors[:, is_positive] / np.sqrt(values[is_positive])
    return scaled


def class_anchors(coordinates: FloatArray, indicators: FloatArray) -> FloatArray:
    """Return the (n_classes, rank) means of the classes, times the root of their sizes."""
    counts = indicators.sum(axis=0)
    anchors: FloatArray = (indicators.T @ coordinates) / np.sqrt(np.maximum(counts, 1.0))[:, None]
    return anchors


def _normalise(view: View) -> View:
    """Scale both traces and the norm of the anchors to 1."""
    spread, compactness = float(np.trace(view.spread)), float(np.trace(view.compactness))
    rounding = len(view.spread) * np.finfo(np.float64).eps * (spread + compactness)
    if min(spread, compactness) <= rounding:
        variation = "differ" if spread <= rounding else "vary within themselves"
        raise InvalidInputError(
            f"the classes of a modality do not {variation}: there is nothing to learn from"
        )
    anchors = view.anchors / np.linalg.norm(view.anchors)
    return View(view.spread / spread, view.compactness / compactness, anchors)
