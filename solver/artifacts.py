"""Saving and loading what was fitted: a safetensors file of arrays and a JSON file, no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save

from solver.composite.projector import CompositeProjector, CompositeSide, Head, MatchCurve
from solver.linalg import FloatArray
from solver.logistic import LinearClassifier
from solver.optimisation.convergence import StopReason
from solver.progress import IterationProgress
from solver.projector import AffineProjector, Projector
from solver.scaling.feature_maps import FeatureMap, FeatureMapConfig
from solver.scaling.scaler import Scaler
from solver.semantic.ensemble import Branch, Ensemble, NeighbourClassifier, WeightedClassifier
from solver.semantic.projector import PosteriorProjector
from solver.state import ARRAYS_FILE, ESTIMATOR_FORMAT, HEADER_FILE, restore
from solver.validation import ArtifactError, InvalidInputError, InvalidParameterError

if TYPE_CHECKING:
    from solver.base import CrossModalEstimator

_AFFINE, _POSTERIORS, _COMPOSITE = 1, 2, 3  # format numbers of the kinds of projector
_FIELDS: dict[int, dict[str, type]] = {
    _AFFINE: {"x_scaling": str, "z_scaling": str, "facts": dict},
    _POSTERIORS: {"loss": str, "x": list, "z": list, "facts": dict},
    _COMPOSITE: {"x": dict, "z": dict, "facts": dict},
    ESTIMATOR_FORMAT: {"estimator": dict},
}
"""Required fields of each format, and their types."""


def save_projector(projector: Projector, directory: Path, facts: dict[str, Any]) -> None:
    """Write a projector into an existing folder, as ``model.safetensors`` and ``model.json``.

    The facts, which are JSON-serialisable, say how it was trained.
    """
    header: dict[str, Any]
    if isinstance(projector, PosteriorProjector):
        header = {"format": _POSTERIORS, **projector.describe()}
    elif isinstance(projector, CompositeProjector):
        header = {"format": _COMPOSITE, **projector.describe()}
    elif isinstance(projector, AffineProjector):
        header = {
            "format": _AFFINE,
            "x_scaling": projector.x_scaling,
            "z_scaling": projector.z_scaling,
            "loss": projector.loss,
        }
    else:
        raise TypeError(f"a {type(projector).__name__} has no file format")
    text = json.dumps({**header, "facts": facts}, indent=2, allow_nan=False)
    arrays = {name: np.ascontiguousarray(value) for name, value in projector.arrays().items()}
    (directory / ARRAYS_FILE).write_bytes(save(arrays))
    (directory / HEADER_FILE).write_text(text + "\n", encoding="utf-8")


def load_projector(directory: Path) -> tuple[Projector, dict[str, Any]]:
    """Load a projector that `save_projector` wrote, and its facts.

    ArtifactError if a file is missing or damaged, or has another format or inconsistent contents; it names
    the file or the field.
    """
    arrays, header = _read_arrays(directory / ARRAYS_FILE), _read_header(directory / HEADER_FILE)
    if header["format"] == ESTIMATOR_FORMAT:
        raise ArtifactError(f"{directory} holds an estimator, which `load` reads")
    projector: Projector
    try:
        if header["format"] == _POSTERIORS:
            projector = PosteriorProjector.from_arrays(arrays, header)
        elif header["format"] == _COMPOSITE:
            projector = CompositeProjector.from_arrays(arrays, header)
        else:
            # Files of versions with a single loss do not name it.
            loss = header.get("loss", "logistic")
            projector = AffineProjector.from_arrays(arrays, header["x_scaling"], header["z_scaling"], loss)
    except (InvalidInputError, InvalidParameterError) as error:
        raise ArtifactError(f"{directory}: {error}") from error
    return projector, header["facts"]


def load(folder: str | Path) -> CrossModalEstimator:
    """Load an estimator that its method `save` wrote.

    Parameters
    ----------
    folder : path
        Folder of the two files, which may come from anybody: they hold numbers and words, and run nothing.

    Returns
    -------
    CrossModalEstimator
        With the parameters and the attributes of the one that was saved, to the bit.

    Raises
    ------
    ArtifactError
        If a file is missing or damaged, or holds something else.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from solver import CCA, load, make_low_rank_pairs
    >>> data = make_low_rank_pairs(60, 60, random_state=0)
    >>> model, folder = CCA().fit(data.X, data.Z), mkdtemp()
    >>> model.save(folder)
    >>> bool((load(folder).similarity(data.X, data.Z) == model.similarity(data.X, data.Z)).all())
    True
    """
    directory = Path(folder)
    arrays, header = _read_arrays(directory / ARRAYS_FILE), _read_header(directory / HEADER_FILE)
    if header["format"] != ESTIMATOR_FORMAT:
        raise ArtifactError(f"{directory} holds a projector, which `load_projector` reads")
    try:
        estimator: CrossModalEstimator = restore(header["estimator"], arrays, _saved_classes())
        estimator._check_parameters()
        estimator.n_features_in_  # noqa: B018 - raises if it is none, or was never fitted
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"{directory} holds no estimator of this version: {error!r:.200}") from error
    return estimator


def _saved_classes() -> dict[str, type[Any]]:
    """Return the classes of estimators and of their parts; imported here, as some need scikit-learn."""
    from solver.bilinear.estimator import LowRankBilinearCV
    from solver.comparison.methods import METHODS
    from solver.composite.estimator import CompositeBilinear
    from solver.composite.facet_terms import Contradiction
    from solver.composite.learning import Choice
    from solver.composite.pairs import Pairing
    from solver.semantic import learners

    classes: list[type[Any]] = [method.estimator for method in METHODS.values()]
    classes += [LowRankBilinearCV, CompositeBilinear, StopReason, IterationProgress]
    classes += [learners.Posteriors, learners.ClassifierConfig, Ensemble, Branch, WeightedClassifier]
    classes += [learners.LogisticLearner, learners.RidgeLearner, learners.VoteLearner, NeighbourClassifier]
    classes += [LinearClassifier, FeatureMap, FeatureMapConfig, Scaler]
    classes += [Choice, Contradiction, Pairing, CompositeProjector, CompositeSide, Head, MatchCurve]
    return {part.__name__: part for part in classes}


def _read_arrays(path: Path) -> dict[str, FloatArray]:
    try:
        arrays: dict[str, FloatArray] = load_file(path)
    except Exception as error:  # the parser raises several types, and another for dtypes unknown to NumPy
        raise ArtifactError(f"{path} is not a readable safetensors file: {error}") from error
    return arrays


def _read_header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads(path.read_text(encoding="utf-8"), parse_constant=_reject_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not a readable JSON file: {error}") from error
    if not isinstance(header, dict):
        raise ArtifactError(f"{path} must hold an object, got {type(header).__name__}")
    number = header.get("format")
    if type(number) is not int or number not in _FIELDS:
        raise ArtifactError(f"{path}: format must be one of {sorted(_FIELDS)}, got {number!r:.100}")
    for name, kind in _FIELDS[number].items():
        if type(header.get(name)) is not kind:
            raise ArtifactError(
                f"{path}: {name} of format {number} must be of type {kind.__name__}, "
                f"got {header.get(name)!r:.100}"
            )
    return header


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
