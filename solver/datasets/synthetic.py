"""Synthetic pairs whose classes follow a known low-rank bilinear truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.linalg import FloatArray
from solver.validation import COUNT, NOT_NEGATIVE, InvalidParameterError, integer_from


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticPairs:
    """Samples of two modalities around class centres that a low-rank matrix matches.

    Parameters
    ----------
    X, Z : ndarray of shapes (n_samples_x, n_features_x) and (n_samples_z, n_features_z)
        Both modalities.
    x_labels, z_labels : ndarray of int
    M : ndarray of shape (n_features_x, n_features_z)
        The planted matrix: ``x^T M z`` is large exactly for equal classes, up to the noise.
    """

    X: FloatArray
    Z: FloatArray
    x_labels: npt.NDArray[np.intp]
    z_labels: npt.NDArray[np.intp]
    M: FloatArray


def make_low_rank_pairs(
    n_samples_x: int = 200,
    n_samples_z: int = 200,
    *,
    n_features_x: int = 20,
    n_features_z: int = 15,
    n_classes: int = 5,
    noise: float = 0.3,
    random_state: int | np.random.Generator | None = None,
) -> SyntheticPairs:
    """Draw samples ``x = A c + noise`` and ``z = B c + noise`` with one code c per class.

    Parameters
    ----------
    n_samples_x, n_samples_z : int
        Samples of each modality; every class gets nearly equally many.
    n_features_x, n_features_z : int, >= n_classes
        Dimensions.
    n_classes : int, >= 2
        Classes; their codes are the vertices of a simplex, so the truth has rank ``n_classes - 1``.
    noise : float, >= 0
        Length of the noise vector relative to the centre's.
    random_state : int, Generator or None

    Raises
    ------
    InvalidParameterError
        If there are fewer features or samples than classes, fewer than two classes, or `noise` is
        negative or not finite.
    """
    integer_from(2).check("n_classes", n_classes)
    for name, value in (("n_features_x", n_features_x), ("n_features_z", n_features_z)):
        integer_from(n_classes).check(name, value)
    for name, value in (("n_samples_x", n_samples_x), ("n_samples_z", n_samples_z)):
        COUNT.check(name, value)
        if value < n_classes:
            raise InvalidParameterError("n_classes", n_classes, f"at most {name}={value}")
    NOT_NEGATIVE.check("noise", noise)
    rng = np.random.default_rng(random_state)
    codes = np.eye(n_classes) - 1.0 / n_classes
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    A = np.linalg.qr(rng.standard_normal((n_features_x, n_classes)))[0]
    B = np.linalg.qr(rng.standard_normal((n_features_z, n_classes)))[0]
    x_labels = rng.permutation(np.arange(n_samples_x) % n_classes)
    z_labels = rng.permutation(np.arange(n_samples_z) % n_classes)
    X = codes[x_labels] @ A.T + noise * rng.standard_normal((n_samples_x, n_features_x)) / np.sqrt(
        n_features_x
    )
    Z = codes[z_labels] @ B.T + noise * rng.standard_normal((n_samples_z, n_features_z)) / np.sqrt(
        n_features_z
    )
    centring = np.eye(n_classes) - 1.0 / n_classes
    return SyntheticPairs(X, Z, x_labels, z_labels, A @ centring @ B.T)
