"""Steps after an encoder: centring, unit length, square roots, standardisation, and principal components."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse
from typing_extensions import override

from app.domain.entities import Content, Features, Matrix
from app.domain.errors import not_trainable
from app.domain.searches import WordReport
from app.encoders.base import BaseEncoder, pack_array, unpack_array
from app.encoders.options import DEFAULT_ENERGY

_MOST_ROWS, _MOST_FEATURES = 20_000, 8192
"""Rows, evenly spread, and features that steps are learned from: 650 MB; a covariance takes 270 MB."""


Step = Callable[[Features], Features]
"""Returns changed features, of the same number of rows."""


Arrays = dict[str, npt.NDArray[np.float32]]
"""What a step learns, by name."""


@dataclass(slots=True)
class LearnedStep:
    """A step that learns arrays from the features of training items."""

    learn: Callable[[Matrix], Arrays]
    change: Callable[[Matrix, Arrays], Matrix]
    learned: Arrays = field(default_factory=dict, init=False)

    def __call__(self, features: Features) -> Features:
        return self.change(_as_dense(features), self.learned)

    def state(self) -> dict[str, Any]:
        """Return what was learned, as JSON values."""
        return {name: pack_array(array) for name, array in self.learned.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become the step of that state."""
        self.learned = {name: unpack_array(packed) for name, packed in state.items()}


def take_roots(features: Features) -> Features:
    """Take the root of each number without its sign, which makes long counts matter less."""
    if isinstance(features, np.ndarray):
        return np.sign(features) * np.sqrt(np.abs(features))
    changed: Any = features.copy()
    changed.data = np.sign(changed.data) * np.sqrt(np.abs(changed.data))
    return cast("Features", changed)


def learn_spread(features: Matrix, *, with_deviation: bool) -> Arrays:
    """Return the mean of each feature, and its deviation (0 counts as 1) if asked for."""
    mean = features.mean(axis=0, dtype=np.float64).astype(np.float32)
    deviation = features.std(axis=0, dtype=np.float64) if with_deviation else np.ones_like(mean)
    # A feature whose numbers differ by rounding alone would be nothing but noise.
    noise = np.finfo(np.float32).eps * np.maximum(np.abs(mean), 1e-30)
    deviation = np.where(deviation > noise, deviation, 1.0).astype(np.float32)
    return {"mean": mean, "deviation": deviation}


def standardise(features: Matrix, learned: Arrays) -> Matrix:
    """Subtract the mean of each feature, and divide by its deviation."""
    return (features - learned["mean"]) / learned["deviation"]


def learn_components(features: Matrix, energy: float) -> Arrays:
    """Return the first principal components, as many as have that share of the variance (`energy`)."""
    solver = "covariance_eigh" if len(features) >= features.shape[1] else "full"
    pca = importlib.import_module("sklearn.decomposition").PCA
    model = pca(energy, svd_solver=solver).fit(features.astype(np.float64))
    axes = np.ascontiguousarray(model.components_.T, np.float32)
    return {"mean": model.mean_.astype(np.float32), "axes": axes}


def project(features: Matrix, learned: Arrays) -> Matrix:
    """Project onto principal components."""
    # In double precision: the last digits of single precision depend on how many rows there are.
    rows = features.astype(np.float64) - learned["mean"]
    return (rows @ learned["axes"].astype(np.float64)).astype(np.float32)


def make_step(name: str) -> Step:
    """Return the step of a checked name, such as ``"pca:0.9"``."""
    kind, _, energy = name.partition(":")
    match kind:
        case "center":
            return LearnedStep(partial(learn_spread, with_deviation=False), standardise)
        case "l2":
            return with_unit_rows
        case "sqrt":
            return take_roots
        case "standardize":
            return LearnedStep(partial(learn_spread, with_deviation=True), standardise)
        case _:
            return LearnedStep(partial(learn_components, energy=float(energy or DEFAULT_ENERGY)), project)


class SteppedEncoder(BaseEncoder):
    """An encoder with steps after it. What is stored with items is what the encoder itself gives."""

    def __init__(self, encoder: BaseEncoder, names: Sequence[str]) -> None:
        self._encoder = encoder
        self._steps = [make_step(name) for name in names]
        self.content_form = encoder.content_form
        self.is_fitted_with_model = encoder.is_fitted_with_model
        self.is_quick = encoder.is_quick
        self.has_learning_steps = any(isinstance(step, LearnedStep) for step in self._steps)
        self.learns_from_stored = self.has_learning_steps and not encoder.is_fitted_with_model

    @override
    def check(self, field: str, raw: Content) -> None:
        self._encoder.check(field, raw)

    @override
    def encode(self, raw: Sequence[Content]) -> Features:
        return self.from_stored(self._encoder.encode_learned(raw))

    @override
    def encode_to_store(self, raw: Sequence[Content]) -> Features:
        return self._encoder.encode(raw)

    @override
    def from_stored(self, features: Features) -> Features:
        for step in self._steps:
            features = step(features)
        return features

    @override
    def fit(self, texts: Sequence[str]) -> Self:
        self._encoder.fit(texts)
        if not self.has_learning_steps:
            return self
        sample = texts[:: _stride(len(texts))]
        return self.fit_to_stored(self._encoder.encode_learned([Content(text=text) for text in sample]))

    @override
    def fit_to_stored(self, features: Features) -> Self:
        """Learn the steps one after the other; raises ConflictError if there are too many features."""
        features = features[:: _stride(features.shape[0])]
        for step in self._steps:
            if isinstance(step, LearnedStep):
                if features.shape[1] > _MOST_FEATURES:
                    raise not_trainable(
                        f"the encoder's steps learn from at most {_MOST_FEATURES} features, "
                        f"and it gives {features.shape[1]}"
                    )
                step.learned = step.learn(_as_dense(features))
            features = step(features)
        return self

    @override
    def look_up_words(self, raw: Content) -> WordReport | None:
        return self._encoder.look_up_words(raw)

    @override
    def nearest_words(self, word: str) -> tuple[str, ...]:
        return self._encoder.nearest_words(word)

    @override
    def learn_names(self, names: Sequence[str], texts: Sequence[str]) -> Self:
        self._encoder.learn_names(names, texts)
        return self

    @override
    def settled_options(self) -> dict[str, Any]:
        return self._encoder.settled_options()

    @override
    def options_from(self, first: Content) -> dict[str, Any]:
        return self._encoder.options_from(first)

    @override
    def pending_options(self, used: Mapping[str, Any]) -> dict[str, Any]:
        return self._encoder.pending_options(used)

    @override
    def state(self) -> dict[str, Any]:
        states = [step.state() if isinstance(step, LearnedStep) else {} for step in self._steps]
        return {"encoder": self._encoder.state(), "steps": states}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        self._encoder.restore(state["encoder"])
        for step, step_state in zip(self._steps, state["steps"], strict=True):
            if isinstance(step, LearnedStep):
                step.restore(step_state)
        return self

    @override
    def fault(self) -> str | None:
        return self._encoder.fault()


def with_unit_rows(features: Features) -> Features:
    """Return features with rows of unit length; rows of zeros remain."""
    if isinstance(features, np.ndarray):
        # In double precision: the squares of what single precision holds may be infinite in it.
        norms = np.linalg.norm(features.astype(np.float64), axis=1)
        return (features * _inverse(norms)[:, None]).astype(np.float32)
    rows: Any = scipy.sparse.csr_array(features, dtype=np.float64)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)))
    return scipy.sparse.csr_array(rows.multiply(_inverse(lengths)[:, None]), dtype=np.float32)


def _inverse(norms: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.where(norms > 0, 1.0 / norms, 1.0)


def _as_dense(features: Features) -> npt.NDArray[np.float32]:
    return features if isinstance(features, np.ndarray) else features.toarray()


def _stride(n_rows: int) -> int:
    return max(1, -(-n_rows // _MOST_ROWS))
