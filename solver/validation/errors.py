"""Errors of the learning library, one class for each kind of mistake."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class SolverError(Exception):
    """Base class of everything this package raises on purpose."""


class InvalidParameterError(SolverError, ValueError):
    """A parameter of an estimator or a function lies outside its allowed range.

    Attributes
    ----------
    name : str
    value : object
        The value that was rejected.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name} must be {expected}, got {value!r}")
        self.name = name
        self.value = value


class InvalidInputError(SolverError, ValueError):
    """An array handed to the library has a wrong shape, type or value."""


class OutOfRangeError(InvalidInputError):
    """Samples are too large to be scaled as the training samples were.

    Attributes
    ----------
    is_outside : ndarray of bool, shape (n_samples,)
        True for those samples.
    """

    def __init__(self, message: str, is_outside: npt.NDArray[np.bool]) -> None:
        super().__init__(message)
        self.is_outside = is_outside


class SupervisionError(SolverError, ValueError):
    """Labels or pairs do not fit the samples, or leave nothing to learn from."""


class NotFittedError(SolverError, AttributeError):
    """An estimator was asked to project before it was fitted."""


class NumericalError(SolverError, ArithmeticError):
    """An iterate or an objective became infinite or not a number."""


class EngineError(SolverError, RuntimeError):
    """What computes a fit elsewhere is not there, or cannot read what it is to compute."""


class DatasetError(SolverError, ValueError):
    """A data file is missing, damaged or not in the expected form."""


class ArtifactError(SolverError, ValueError):
    """A stored model is missing, damaged or of an unknown kind."""


class ConvergenceWarning(UserWarning):
    """A fit missed its tolerance: at the iteration limit, or because the gap no longer decreased."""


class RankWarning(UserWarning):
    """A learned matrix has a lower rank than there are classes: it may leave out those with few samples."""
