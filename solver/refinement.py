"""Quasi-Newton descent on the factors of a low-rank matrix, between proximal steps.

Since ``||M||_* = min (||A||_F^2 + ||B||_F^2) / 2`` over all ``A B^T = M``, the objective restricted to
rank k is the smooth function ``l(A B^T) + alpha/2 (||A||_F^2 + ||B||_F^2)`` (Srebro, Rennie and Jaakkola,
"Maximum-margin matrix factorization", NIPS 2004). L-BFGS moves far on it at the price of two thin
products per evaluation. It cannot leave the rank it was given, nor tell a saddle from a minimum:
that is left to the proximal steps and to the certificate.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.linalg
import scipy.optimize

from solver.linalg import FloatArray, LowRankMatrix

_MEMORY = 10


class FactorableLoss(Protocol):
    """A smooth loss of a bilinear matrix that differentiates with respect to its factors."""

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss at A B^T and its gradients with respect to A and B."""
        ...


def refine_factors(
    loss: FactorableLoss, alpha: float, M: LowRankMatrix, max_evaluations: int, relative_tolerance: float
) -> LowRankMatrix:
    """Descend from `M` within its rank.

    Parameters
    ----------
    loss : FactorableLoss
        The smooth term.
    alpha : float, > 0
        Weight of the nuclear norm.
    M : LowRankMatrix of rank >= 1
        Where to begin. Not modified.
    max_evaluations : int
        Limit on loss evaluations.
    relative_tolerance : float
        Stop when a step lowers the objective by less than this share.

    Returns
    -------
    LowRankMatrix
        In the dtype of `M`; its objective is at most that of `M`, up to rounding.
    """
    A, B = (factor.astype(np.float64) for factor in M.balanced_factors())
    shape, split = (-1, M.rank), A.size

    def evaluate(flat: FloatArray) -> tuple[float, FloatArray]:
        left, right = flat[:split].reshape(shape), flat[split:].reshape(shape)
        value, on_left, on_right = loss.value_and_factor_gradients(left, right)
        gradient = np.concatenate([on_left.ravel(), on_right.ravel()]) + alpha * flat
        return value + 0.5 * alpha * float(flat @ flat), gradient

    found = scipy.optimize.minimize(
        evaluate,
        np.concatenate([A.ravel(), B.ravel()]),
        jac=True,
        method="L-BFGS-B",
        options={"maxcor": _MEMORY, "maxfun": max_evaluations, "ftol": relative_tolerance, "gtol": 0.0},
    )
    return from_factors(found.x[:split].reshape(shape), found.x[split:].reshape(shape)).astype(M.U.dtype)


def from_factors(left: FloatArray, right: FloatArray) -> LowRankMatrix:
    """Return the SVD of ``left @ right.T`` from QR decompositions of the factors.

    Parameters
    ----------
    left : ndarray of shape (n_features_x, k)
        Not modified.
    right : ndarray of shape (n_features_z, k)
        Not modified.
    """
    q_left, r_left = scipy.linalg.qr(left, mode="economic")
    q_right, r_right = scipy.linalg.qr(right, mode="economic")
    U, s, Vt = scipy.linalg.svd(r_left @ r_right.T)
    kept = s > np.finfo(s.dtype).eps * max(len(left), len(right)) * s.max(initial=0.0)
    return LowRankMatrix((q_left @ U[:, : len(s)])[:, kept], s[kept], (q_right @ Vt[: len(s)].T)[:, kept])
